//! Reads the vocabulary and the merges of a byte-level tokenizer.json, and writes them as the JSON that a tokenizer's digest is of.
//! These two steps took most of the time to load a tokenizer in Python.
//!
//! Invariant: in a file that `read` accepts, Python's reader would find the same vocabulary and merges. All else is left to that
//! reader, which says what is wrong. Cost: O(bytes), and O(n log n) to sort n merges and tokens.

use crate::hash::Seed;
use rustc_hash::FxHashMap;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};
use std::ops::Range;

const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

/// The BPE of a tokenizer.json.
#[derive(Debug, PartialEq, Eq)]
pub struct Bpe<'a> {
    /// The tokens with their ids, in the order of the file. Each token is there once.
    pub vocabulary: Vec<(Cow<'a, str>, u32)>,
    /// `left, right, rank, token` of each merge. Of equal merges the last counts, in the place of the first, as in tokenizers.
    pub merges: Vec<[u32; 4]>,
    /// The file with an empty vocabulary and no merges.
    pub rest: String,
}

/// The BPE in a file. None if there is none, if it is not byte-level, or if any of it is unusual. Whether ids are there once, and
/// what else the file has, is not looked at.
pub fn read(file: &str) -> Option<Bpe<'_>> {
    let document: BTreeMap<&str, &RawValue> = serde_json::from_str(file).ok()?;
    if !document.get("decoder")?.get().contains("\"ByteLevel\"") {
        return None; // Python needs the merges as texts
    }
    let model: BTreeMap<&str, &RawValue> = serde_json::from_str(document.get("model")?.get()).ok()?;
    if !matches!(model.get("type").map(|kind| kind.get()), None | Some(r#""BPE""#)) {
        return None;
    }
    if !matches!(model.get("continuing_subword_prefix").map(|prefix| prefix.get()), None | Some("null" | r#""""#)) {
        return None;
    }
    let (vocabulary, merges) = (model.get("vocab")?.get(), model.get("merges")?.get());
    let Vocabulary(tokens) = serde_json::from_str(vocabulary).ok()?;
    let pairs = pairs_of(merges)?;
    let mut ids = HashMap::with_capacity_and_hasher(tokens.len(), Seed::default());
    for (text, id) in &tokens {
        if ids.insert(text.as_ref(), *id).is_some() {
            return None;
        }
    }
    Some(Bpe { merges: merge_rows(&pairs, &ids)?, rest: without(file, [vocabulary, merges]), vocabulary: tokens })
}

/// The merges of a list of pairs, or of a list of texts with one space each.
fn pairs_of(merges: &str) -> Option<Vec<(Text<'_>, Text<'_>)>> {
    if let Ok(pairs) = serde_json::from_str(merges) {
        return Some(pairs);
    }
    let texts: Vec<Text> = serde_json::from_str(merges).ok()?;
    let merges = texts.into_iter().filter(|Text(text)| !text.starts_with("#version"));
    merges.map(Text::in_two).collect()
}

fn merge_rows(pairs: &[(Text, Text)], ids: &HashMap<&str, u32, Seed>) -> Option<Vec<[u32; 4]>> {
    let mut places: FxHashMap<(u32, u32), usize> = FxHashMap::with_capacity_and_hasher(pairs.len(), Default::default());
    let mut rows: Vec<[u32; 4]> = Vec::with_capacity(pairs.len());
    let mut token = String::new();
    for (rank, (Text(left), Text(right))) in pairs.iter().enumerate() {
        token.clear();
        token.push_str(left);
        token.push_str(right);
        let [left, right, token] = [left.as_ref(), right, &token].map(|text| ids.get(text).copied());
        let (left, right) = (left?, right?);
        let row = [left, right, u32::try_from(rank).ok()?, token?];
        let place = *places.entry((left, right)).or_insert(rows.len());
        match rows.get_mut(place) {
            Some(earlier) => *earlier = row,
            None => rows.push(row),
        }
    }
    Some(rows)
}

/// The file with two of its parts, an object and a list, emptied.
fn without(file: &str, parts: [&str; 2]) -> String {
    let place = |part: &str| -> Range<usize> {
        let start = part.as_ptr() as usize - file.as_ptr() as usize;
        start..start + part.len()
    };
    let mut emptied = [(place(parts[0]), "{}"), (place(parts[1]), "[]")];
    emptied.sort_by_key(|(place, _)| place.start);
    let [(first, in_first), (second, in_second)] = emptied;
    [&file[..first.start], in_first, &file[first.end..second.start], in_second, &file[second.end..]].concat()
}

/// `[[order, left, right, token], ...]` of merges that are `left, right, rank, token`: sorted by rank, then by ids. The order is the
/// number of lower ranks.
pub fn merges_json(mut merges: Vec<[u32; 4]>) -> String {
    merges.sort_unstable_by_key(|&[left, right, rank, token]| (rank, left, right, token));
    let (mut json, mut order, mut last) = (String::from("["), 0, merges.first().map(|merge| merge[2]));
    for [left, right, rank, token] in merges {
        if last.replace(rank) != Some(rank) {
            order += 1;
        }
        let _ = write!(json, "[{order},{left},{right},{token}],");
    }
    closed(json)
}

/// `[[id, "bytes in hex"], ...]` of tokens, sorted by id.
pub fn tokens_json(mut tokens: Vec<(u32, &[u8])>) -> String {
    tokens.sort_unstable();
    let mut json = String::from("[");
    for (id, bytes) in tokens {
        let _ = write!(json, "[{id},\"");
        json.extend(bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| HEX[usize::from(digit)]));
        json.push_str("\"],");
    }
    closed(json)
}

/// A list whose elements each end with a comma.
fn closed(mut list: String) -> String {
    if list.ends_with(',') {
        list.pop();
    }
    list.push(']');
    list
}

struct Vocabulary<'a>(Vec<(Cow<'a, str>, u32)>);

impl<'de: 'a, 'a> Deserialize<'de> for Vocabulary<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl<'de> Visitor<'de> for Tokens {
            type Value = Vec<(Cow<'de, str>, u32)>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("tokens with their ids")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut tokens = Vec::new();
                while let Some((Text(token), id)) = map.next_entry()? {
                    tokens.push((token, id));
                }
                Ok(tokens)
            }
        }
        json.deserialize_map(Tokens).map(Self)
    }
}

/// A string, borrowed if it has no escapes.
struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    /// The parts before and behind the only space.
    fn in_two(self) -> Option<(Self, Self)> {
        let (left, right): (Cow<str>, Cow<str>) = match self.0 {
            Cow::Borrowed(text) => text.split_once(' ').map(|(left, right)| (left.into(), right.into()))?,
            Cow::Owned(text) => {
                text.split_once(' ').map(|(left, right)| (left.to_owned().into(), right.to_owned().into()))?
            }
        };
        (!right.contains(' ')).then_some((Text(left), Text(right)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct One;
        impl<'de> Visitor<'de> for One {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(text.into())
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(text.to_owned().into())
            }
        }
        json.deserialize_str(One).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(vocabulary: &str, merges: &str) -> String {
        format!(r#"{{"model": {{"vocab": {vocabulary}, "merges": {merges}}}, "decoder": {{"type": "ByteLevel"}}}}"#)
    }

    #[test]
    fn merges_are_pairs_or_texts() {
        let vocabulary = r#"{"a": 5, "\u0062": 1, "ab": 2, "aba": 7}"#;
        for merges in [r#"[["a", "b"], ["ab", "a"]]"#, r##"["#version: 0.2", "a \u0062", "ab a"]"##] {
            let file = file(vocabulary, merges);
            let found = read(&file).unwrap();
            assert_eq!(found.merges, [[5, 1, 0, 2], [2, 5, 1, 7]]);
            assert_eq!(found.vocabulary, [("a", 5), ("b", 1), ("ab", 2), ("aba", 7)].map(|(a, b)| (a.into(), b)));
            assert_eq!(found.rest, self::file("{}", "[]"));
        }
    }

    #[test]
    fn of_equal_merges_the_last_counts_in_the_place_of_the_first() {
        let file = file(r#"{"a": 0, "b": 1, "ab": 2, "ba": 3}"#, r#"["a b", "b a", "a b"]"#);
        assert_eq!(read(&file).unwrap().merges, [[0, 1, 2, 2], [1, 0, 1, 3]]);
    }

    #[test]
    fn the_vocabulary_may_be_behind_the_merges() {
        let found = |vocabulary| {
            format!(r#"{{"decoder": "ByteLevel", "model": {{"merges": [], "type": "BPE", "vocab": {vocabulary}}}}}"#)
        };
        assert_eq!(read(&found(r#"{"a": 0}"#)).unwrap().rest, found("{}"));
    }

    #[test]
    fn json_is_sorted_whatever_the_order_was() {
        let merges = vec![[7, 8, 5, 9], [1, 2, 3, 4], [0, 9, 3, 4]];
        assert_eq!(merges_json(merges), "[[0,0,9,4],[0,1,2,4],[1,7,8,9]]");
        assert_eq!(tokens_json(vec![(10, b"\n\xff"), (2, b"ab")]), r#"[[2,"6162"],[10,"0aff"]]"#);
        assert_eq!((merges_json(vec![]), tokens_json(vec![])), ("[]".to_owned(), "[]".to_owned()));
    }

    #[test]
    fn anything_else_is_left_to_others() {
        let good = r#"{"a": 0, "b": 1, "ab": 2}"#;
        for (vocabulary, merges) in [
            (r#"{"a": 0, "b": 1, "ab": 2, "a": 3}"#, "[]"),
            (r#"{"a": -1}"#, "[]"),
            (r#"{"a": 1.0}"#, "[]"),
            (r#"{"a": 4294967296}"#, "[]"),
            (r#"{"\ud800": 1}"#, "[]"),
            (r#"[["a", 0.5]]"#, "[]"),
            (good, r#"[["a", "b"], "a b"]"#),
            (good, r#"[["a", "b", "a"]]"#),
            (good, r#"[["a"]]"#),
            (good, r#"[["a", 1]]"#),
            (good, r#"["ab"]"#),
            (good, r#"["a  b"]"#),
            (good, r#"["b a"]"#),
            (good, r#"["a c"]"#),
            (good, "null"),
            (good, "{}"),
            (good, r###"[], "continuing_subword_prefix": "##""###),
            (good, r#"[], "type": "WordPiece""#),
            (good, "[] // none"),
        ] {
            assert_eq!(read(&file(vocabulary, merges)), None, "{vocabulary} {merges}");
        }
        assert!(read(&file(good, r#"[], "continuing_subword_prefix": """#)).is_some());
        assert_eq!(read(&file(good, "[]").replace("ByteLevel", "Fuse")), None);
        for rest in ["", "[]", "{}", r#"{"model": {}}"#, r#"{"model": {"vocab": {}}}"#, "\u{feff}{}"] {
            assert_eq!(read(rest), None, "{rest}");
        }
    }
}
