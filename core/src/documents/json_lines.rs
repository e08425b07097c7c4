//! Reads texts, ids and other short values from lines of well-formed JSON.
//!
//! Invariant: a line that is accepted here would be accepted by msgspec, which reads all other lines, with the same text and values.
//! Lines on which the two might differ (depth, numbers or characters) are left to msgspec. Cost: O(bytes).

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Strings, one after another, and the end of each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Strings {
    /// The strings, one after another.
    pub bytes: Vec<u8>,
    /// Where each string ends in `bytes`.
    pub ends: Vec<i64>,
    /// Whether the current string was set.
    is_set: bool,
}

impl Strings {
    /// Where the current string begins.
    fn start(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }

    /// Sets the current string. Of a duplicate key, the last value counts.
    fn write(&mut self, text: &str) {
        self.bytes.truncate(self.start());
        self.bytes.extend_from_slice(text.as_bytes());
        self.is_set = true;
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len() as i64);
        self.is_set = false;
    }
}

/// The documents in some lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Documents {
    /// The texts of the documents.
    pub texts: Strings,
    /// For each further key, the values of the documents.
    pub values: Vec<Strings>,
    /// The number of line ends.
    pub n_line_ends: usize,
}

/// The texts, and the values of further keys, of the objects in `lines`, one per line. The keys differ. Lines of white space alone
/// are skipped. None if any line is something else.
pub fn read(lines: &str, text_key: &str, further_keys: &[impl AsRef<str>]) -> Option<Documents> {
    let names: Vec<&str> = further_keys.iter().map(AsRef::as_ref).collect();
    let keys = Keys { text: text_key, further: &names };
    let mut found = Documents { values: names.iter().map(|_| Strings::default()).collect(), ..Documents::default() };
    found.texts.bytes.reserve_exact(lines.len()); // an escape is at least as long as the character it stands for
    let mut rest = lines;
    while !rest.is_empty() {
        let line = match memchr::memchr(b'\n', rest.as_bytes()) {
            Some(end) => {
                found.n_line_ends += 1;
                let (line, behind) = rest.split_at(end + 1);
                rest = behind;
                line
            }
            None => std::mem::take(&mut rest),
        };
        if line.bytes().all(is_space) {
            continue;
        }
        let mut json = serde_json::Deserializer::from_str(line);
        Document { keys, found: &mut found }.deserialize(&mut json).ok()?;
        json.end().ok()?;
    }
    if found.texts.bytes.len() < lines.len() / 2 {
        found.texts.bytes.shrink_to_fit();
    }
    Some(found)
}

/// The bytes that Python's bytes.isspace counts as white space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

#[derive(Clone, Copy)]
struct Keys<'k> {
    text: &'k str,
    further: &'k [&'k str],
}

enum Key {
    Text,
    Further(usize),
    Other,
}

impl<'de> DeserializeSeed<'de> for Keys<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Key, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Keys<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Key, E> {
        if key == self.text {
            return Ok(Key::Text);
        }
        Ok(self.further.iter().position(|&name| name == key).map_or(Key::Other, Key::Further))
    }
}

struct Document<'k, 'f> {
    keys: Keys<'k>,
    found: &'f mut Documents,
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let Documents { texts, values, .. } = self.found;
        while let Some(key) = map.next_key_seed(self.keys)? {
            match key {
                Key::Text => map.next_value_seed(Value { found: texts, or_integer: false })?,
                Key::Further(i) => map.next_value_seed(Value { found: &mut values[i], or_integer: true })?,
                Key::Other => map.next_value_seed(Skipped)?,
            }
        }
        if !texts.is_set || values.iter().any(|strings| !strings.is_set) {
            return Err(M::Error::custom("a key is missing"));
        }
        texts.end();
        values.iter_mut().for_each(Strings::end);
        Ok(())
    }
}

/// A string, or a decimal integer if `or_integer` is set.
struct Value<'f> {
    found: &'f mut Strings,
    or_integer: bool,
}

impl Value<'_> {
    fn integer<E: Error>(self, id: impl fmt::Display) -> Result<(), E> {
        if !self.or_integer {
            return Err(E::custom("an integer"));
        }
        self.found.write(&id.to_string());
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl Visitor<'_> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string or an integer")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.found.write(text);
        Ok(())
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<(), E> {
        self.integer(id)
    }

    fn visit_i64<E: Error>(self, id: i64) -> Result<(), E> {
        self.integer(id)
    }
}

/// A value of another key. Unlike serde's IgnoredAny, it is checked for depth and for invalid characters.
struct Skipped;

impl<'de> DeserializeSeed<'de> for Skipped {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skipped {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<(), S::Error> {
        while seq.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while map.next_key_seed(Self)?.is_some() {
            map.next_value_seed(Self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &[&str] = &[];

    fn texts(lines: &str) -> Option<Vec<String>> {
        let Documents { texts, n_line_ends, .. } = read(lines, "text", NONE)?;
        assert_eq!(n_line_ends, lines.matches('\n').count());
        let starts = std::iter::once(0).chain(texts.ends.iter().copied());
        Some(
            starts
                .zip(&texts.ends)
                .map(|(start, &end)| String::from_utf8(texts.bytes[start as usize..end as usize].to_vec()).unwrap())
                .collect(),
        )
    }

    #[test]
    fn each_line_is_a_document() {
        let lines = "{\"text\": \"a\\n\\u00e9\"}\n\n \t\r\n{\"id\": [1, {\"text\": null}], \"text\": \"\"}";
        assert_eq!(texts(lines), Some(vec!["a\né".to_string(), String::new()]));
        assert_eq!(texts(""), Some(vec![]));
    }

    #[test]
    fn the_last_of_two_values_counts() {
        assert_eq!(texts("{\"text\": \"long\", \"text\": \"a\"}\n{\"text\": \"b\"}\n").unwrap(), ["a", "b"]);
    }

    #[test]
    fn further_values_are_strings_or_integers() {
        let lines = "{\"text\":\"\",\"id\":\"a\",\"of\":\"b\"}\n{\"of\":1,\"id\":-70,\"text\":\"\"}\n\
                     {\"id\":18446744073709551615,\"of\":\"\",\"text\":\"\"}";
        let [ids, others] = &read(lines, "text", &["id", "of"]).unwrap().values[..] else { panic!("two keys") };
        assert_eq!((ids.bytes.as_slice(), ids.ends.as_slice()), (&b"a-7018446744073709551615"[..], &[1, 4, 24][..]));
        assert_eq!((others.bytes.as_slice(), others.ends.as_slice()), (&b"b1"[..], &[1, 2, 2][..]));
        assert_eq!(read("{\"text\": \"\", \"id\": 1}", "text", &["id", "of"]), None);
    }

    #[test]
    fn anything_else_is_left_to_others() {
        let deep = format!("{{\"more\": {}{}, \"text\": \"\"}}", "[".repeat(200), "]".repeat(200));
        for line in [
            "{}",
            "[]",
            "{\"text\": 1}",
            "{\"text\": null}",
            "{\"text\": \"\"} {\"text\": \"\"}",
            "{\"text\":\n\"\"}",
            "{\"text\": \"\\ud800\"}",
            "{\"more\": \"\\ud800\", \"text\": \"\"}",
            "{\"text\": \"\"",
            "{\"text\": \"\", }",
            "\u{feff}{\"text\": \"\"}",
            "{\"text\": \"\", \"more\": NaN}",
            "{\"text\": \"\", \"more\": 1e999}",
            &deep,
        ] {
            assert_eq!(texts(line), None, "{line}");
        }
        for id in ["1.0", "-0", "1e2", "18446744073709551616", "true", "null", "[]"] {
            assert_eq!(read(&format!("{{\"text\": \"\", \"id\": {id}}}"), "text", &["id"]), None, "{id}");
        }
    }
}
