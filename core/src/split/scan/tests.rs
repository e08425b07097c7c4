//! Compares every scanner with its regexes, run by fancy-regex, and the scanner's ways with each other.

use super::{Scanner, Vectors};
use crate::parallel::interrupt::Stop;
use crate::split::named::{DIGITS, LIKE_CL100K, LIKE_GPT2, LIKE_LLAMA3, NAMED};
use crate::split::sink::Each;
use crate::split::unicode::{DEEPSEEK, GENERAL};
use std::path::Path;

struct Judged {
    name: String,
    scanner: Scanner,
    steps: Vec<fancy_regex::Regex>,
}

impl Judged {
    fn new(name: &str, steps: &[&str]) -> Self {
        let compiled = steps.iter().map(|step| fancy_regex::Regex::new(step).unwrap()).collect();
        Self { name: name.to_string(), scanner: Scanner::of(steps).unwrap(), steps: compiled }
    }

    /// The ends of the pieces, found by windows.
    fn found(&self, text: &str) -> Vec<usize> {
        // AVX-512 is used only for windows that more text follows.
        let longer = format!("{text}{}", " and so on é中".repeat(20));
        let expected = self.found_with(None, &longer);
        self.compare(&self.found_with(Vectors::of_processor(), &longer), &expected, &longer, ", with AVX-512");
        self.found_with(Vectors::of_processor(), text)
    }

    fn found_with(&self, vectors: Option<Vectors>, text: &str) -> Vec<usize> {
        let mut ends = Vec::new();
        let mut at = 0;
        let emit = |piece: &str| {
            assert_eq!(piece, &text[at..at + piece.len()]);
            at += piece.len();
            ends.push(at);
            Ok(())
        };
        self.scanner.split_with(vectors, text, &Stop::default(), &mut Each { text, emit }).unwrap();
        ends
    }

    fn check(&self, text: &str) {
        let mut expected = Vec::new();
        cut(&self.steps, text, 0, &mut expected);
        self.compare(&self.found(text), &expected, text, "");
        let mut at = 0;
        let singly = std::iter::from_fn(|| {
            at = if at < text.len() { self.scanner.end(text.as_bytes(), at) } else { return None };
            Some(at)
        });
        self.compare(&singly.collect::<Vec<_>>(), &expected, text, ", one by one");
    }

    /// Fails with the first piece that differs, and the text around it.
    fn compare(&self, found: &[usize], expected: &[usize], text: &str, way: &str) {
        if let Some(i) = (0..expected.len().max(found.len())).find(|i| found.get(*i) != expected.get(*i)) {
            let start = i.checked_sub(1).map_or(0, |before| expected[before]);
            let around: String = text[start..].chars().take(24).collect();
            let to = |ends: &[usize]| ends.get(i).map(|end| text.get(start..*end).map(str::to_string));
            let (found, expected) = (to(found), to(expected));
            panic!("{}{way}: {around:?} begins with {found:?}, expected {expected:?}", self.name);
        }
    }
}

fn cut(steps: &[fancy_regex::Regex], text: &str, before: usize, ends: &mut Vec<usize>) {
    let Some((step, rest)) = steps.split_first() else {
        ends.extend((!text.is_empty()).then_some(before + text.len()));
        return;
    };
    let mut at = 0;
    for one in step.find_iter(text) {
        let one = one.unwrap();
        cut(rest, &text[at..one.start()], before + at, ends);
        cut(rest, one.as_str(), before + one.start(), ends);
        at = one.end();
    }
    if at < text.len() {
        cut(rest, &text[at..], before + at, ends);
    }
}

fn named() -> impl Iterator<Item = Judged> {
    NAMED.iter().map(|(name, steps)| Judged::new(name, steps))
}

fn spellings() -> impl Iterator<Item = Judged> {
    let single = [&LIKE_GPT2[..], &LIKE_CL100K, &LIKE_LLAMA3].concat();
    let single: Vec<_> = single.into_iter().map(|step| Judged::new(step, &[step])).collect();
    single.into_iter().chain(LIKE_GPT2.map(|step| Judged::new("starcoder", &[DIGITS, step])))
}

fn each_text(alphabet: &[char], n_max: u32, mut check: impl FnMut(&str)) {
    let n = alphabet.len();
    for length in 1..=n_max {
        for code in 0..n.pow(length) {
            let text: String = (0..length).map(|i| alphabet[code / n.pow(i) % n]).collect();
            check(&text);
        }
    }
}

/// A random number generator (xorshift) that gives the same numbers in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const ASCII: &[char] = &[' ', '\n', '\t', 'a', 'A', 's', '1', '\'', '.'];
/// One character of each kind that a pattern distinguishes, and more of those with unusual combinations.
const KINDS: &[char] = &[
    ' ', '\n', '\r', '\t', 'a', 'A', '\'', 's', 'T', 'l', '1', '.', '/', 'é', 'É', 'ǅ', 'ʰ', 'ء', '中', '한',
    '\u{301}', '\u{fe0f}', '²', '٣', '५', '\u{a0}', '\u{85}', '\u{2028}', '\u{3000}', '\u{200d}', '‘', '，', '。',
    '🙂', 'ſ', '\u{212a}', 'Ḁ', 'ⅷ', 'Ↄ', '\0', '\u{7f}', '𐐀', '𝟘',
];

#[test]
fn every_short_text_is_cut_as_the_pattern_says() {
    for judged in named() {
        each_text(ASCII, 4, |text| judged.check(text));
        each_text(KINDS, 2, |text| judged.check(text));
    }
}

#[test]
fn every_text_of_what_a_contraction_or_a_line_end_meets_is_cut_as_the_pattern_says() {
    for judged in named() {
        each_text(&['\'', 's', 'T', ' '], 6, |text| judged.check(text));
        each_text(&['\'', 'r', 'E', 'l', 'ſ'], 5, |text| judged.check(text));
        each_text(&[' ', '\n', '\t', '.', 'a'], 5, |text| judged.check(text));
    }
}

#[test]
fn every_text_of_letters_of_all_cases_marks_and_slashes_is_cut_as_o200k_says() {
    let judged = named().find(|judged| judged.name == "o200k").unwrap();
    each_text(&['A', 'a', 'ء', '\u{301}'], 7, |text| judged.check(text));
    each_text(&['A', '\u{301}', '.', ' ', '\'', 's'], 5, |text| judged.check(text));
    each_text(&['/', '\n', '.', 'a', ' '], 6, |text| judged.check(text));
}

#[test]
fn every_text_of_spaces_of_all_kinds_is_cut_as_deepseek_says() {
    let judged = named().find(|judged| judged.name == "deepseek").unwrap();
    each_text(&[' ', '\u{3000}', '\u{2003}', 'a', 'é', '.'], 5, |text| judged.check(text));
    each_text(&[' ', '\u{3000}', '‘', '中', 'Ḁ', '🙂', '1'], 5, |text| judged.check(text));
}

#[test]
fn other_spellings_are_cut_as_they_say() {
    for judged in spellings() {
        each_text(ASCII, 3, |text| judged.check(text));
        each_text(&[' ', '\n', '\'', 's', '1'], 5, |text| judged.check(text));
        random_texts(150, |text| judged.check(text));
    }
}

/// Texts of runs, so that windows begin and end everywhere.
fn random_texts(n: usize, mut check: impl FnMut(&str)) {
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    for round in 0..n {
        let kinds = if round % 3 == 0 { ASCII } else { KINDS };
        let few: Vec<char> = (0..1 + numbers.below(6)).map(|_| numbers.one_of(kinds)).collect();
        let among = if round % 2 == 0 { &few } else { kinds };
        let longest = numbers.one_of(&[1, 2, 4, 70]);
        let mut text = String::new();
        for _ in 0..1 + numbers.below(60) {
            let character = match numbers.below(20) {
                0 => char::from_u32(numbers.below(0x11_0000) as u32).unwrap_or('a'),
                1 => char::from_u32(numbers.below(0x3000) as u32).unwrap_or('a'),
                _ => numbers.one_of(among),
            };
            let most = if numbers.below(4) == 0 { longest } else { 2 };
            text.extend(std::iter::repeat_n(character, 1 + numbers.below(most)));
            if numbers.below(12) == 0 {
                text.push_str(numbers.one_of(&[
                    "\r\n",
                    "'ll ",
                    "'Re",
                    " the",
                    "don't've",
                    "\n\n    x",
                    "1234567",
                    ".\n/",
                ]));
            }
        }
        check(&text);
    }
}

#[test]
fn random_texts_are_cut_as_the_pattern_says() {
    for judged in named() {
        random_texts(1_500, |text| judged.check(text));
    }
}

#[test]
fn what_is_found_does_not_depend_on_where_a_window_ends() {
    let ends = ["'ll x", "  \n  x", "\n\n", "   ", "1234567 8", "..\n/a", "é'ſ b", "\u{3000}\u{3000}a", "x\u{301}A"];
    for judged in named() {
        for before in ["a", " ", ".", "1", "é", "a b "] {
            for n in (56..68).chain(120..132) {
                for end in ends {
                    let mut text: String = before.chars().cycle().take(n).collect();
                    text.push_str(end);
                    judged.check(&text);
                    text.push_str(&" and so on".repeat(8));
                    judged.check(&text);
                }
            }
        }
    }
}

/// The classes that the patterns name.
fn classes() -> [String; 12] {
    let [_, letters, punctuation, _, ideographs, _] = crate::split::named::DEEPSEEK;
    let spelled = |step: &str| step.trim_start_matches(r"\s?").trim_end_matches('+').to_string();
    [
        r"[\p{Lu}\p{Lt}]".into(),
        r"\p{Ll}".into(),
        r"[\p{Lm}\p{Lo}]".into(),
        r"\p{M}".into(),
        r"\p{N}".into(),
        r"\s".into(),
        r"['\r\n]".into(),
        r"[/\x20]".into(),
        spelled(letters),
        spelled(punctuation),
        spelled(ideographs),
        r"\p{L}".into(),
    ]
}

/// The classes of each code point according to the regex engine; u16::MAX for surrogates.
fn signatures() -> Vec<u16> {
    let classes = classes().map(|class| regex_automata::meta::Regex::new(&format!("^{class}$")).unwrap());
    let mut buffer = [0; 4];
    (0..0x11_0000)
        .map(|code| {
            let Some(character) = char::from_u32(code) else { return u16::MAX };
            let text = &*character.encode_utf8(&mut buffer);
            classes.iter().enumerate().map(|(i, class)| u16::from(class.is_match(text)) << i).sum()
        })
        .collect()
}

/// A character between letters, spaces, numbers, line ends and other characters. `at_length` has more of each.
fn brief(c: char) -> String {
    [c, 'a', c, ' ', c, '1', c, '\n', c, '.', c].iter().collect()
}

fn at_length(c: char) -> String {
    format!(
        "{c}a{c}a {c} 1{c}1\n{c}\n.{c}.{c}A\t{c}a{c}{c}'{c}'s{c}  {c}\r\n{c}/中{c}中{c}ء{c}A{c}\u{301}{c}\u{3000}{c}"
    )
}

/// The regexes distinguish characters only by their classes, or as one of a few literals. So each code point must be split like
/// the first one with the same classes. That one, the literals, and both ends of every range of a class are compared with the
/// regexes.
#[test]
fn every_code_point_is_cut_as_the_pattern_says() {
    let signatures = signatures();
    for (code, signature) in signatures.iter().enumerate().filter(|(_, signature)| **signature != u16::MAX) {
        let character = char::from_u32(code as u32).unwrap();
        let mut buffer = [0; 4];
        let bytes = character.encode_utf8(&mut buffer).as_bytes();
        let (general, length) = GENERAL.at(bytes, 0);
        assert_eq!((u16::from(general), length), (signature & 255, bytes.len()), "{character:?}");
        let named = DEEPSEEK.at(bytes, 0).0;
        let line = ['\r', '\n'].contains(&character);
        let (number, space) = (general & 16 != 0, general & 32 != 0 && !line);
        let rest = u8::from(number) << 3 | u8::from(space) << 4 | u8::from(line) << 5;
        assert_eq!(named, (signature >> 8 & 7) as u8 | rest, "{character:?}");
        assert_eq!(general & 7 != 0, signature >> 11 == 1, "{character:?}");
    }
    // The code that reads a character in a window is the same for all patterns with the same table.
    let tables = ["gpt2", "o200k", "deepseek"];
    named().for_each(|judged| each_code_point(&judged, &signatures, tables.contains(&&*judged.name)));
}

fn each_code_point(judged: &Judged, signatures: &[u16], all: bool) {
    let mut known: Vec<Option<Vec<usize>>> = vec![None; 1 << 12];
    for (code, signature) in signatures.iter().enumerate().filter(|(_, signature)| **signature != u16::MAX) {
        let character = char::from_u32(code as u32).unwrap();
        let literal = code < 0x80 || ['ſ', '\u{212a}'].contains(&character);
        if literal || signatures[code - 1] != *signature || signatures.get(code + 1) != Some(signature) {
            [character.to_string(), brief(character), at_length(character)].iter().for_each(|text| judged.check(text));
        }
        if literal || !all {
            continue;
        }
        let text = brief(character);
        let mut ends = judged.found(&text);
        // Converted to characters, so that characters of other lengths compare: every second one is this character.
        let longer = character.len_utf8() - 1;
        ends.iter_mut().for_each(|end| *end -= (*end + 1 + longer) / (longer + 2) * longer);
        let first = &mut known[usize::from(*signature)];
        assert_eq!(first.get_or_insert_with(|| ends.clone()), &ends, "{}: {character:?}", judged.name);
    }
}

#[test]
fn a_megabyte_of_one_kind_is_cut_as_the_pattern_says() {
    for judged in named() {
        for unit in
            ["a", " ", "1", "\n", "'", ".", "é", "漢", " \r\n", "\r\n", "\u{3000}", "\u{301}", "A\u{301}", "'s", "ab "]
        {
            let text = unit.repeat(40_000);
            let found = judged.found(&text);
            let short = unit.repeat(200);
            judged.check(&short);
            // Far from both ends the pieces repeat, so there are as many per unit as in the short text, except near the ends.
            let (n, n_short) = (found.len(), judged.found(&short).len());
            assert!(n <= n_short * 200, "{} {unit:?}: {n} of {n_short}", judged.name);
        }
    }
}

#[test]
fn the_hard_files_are_cut_as_the_pattern_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/hard");
    let Ok(files) = std::fs::read_dir(folder) else { return };
    for file in files {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let text: String = text.chars().take(60_000).collect();
        named().for_each(|judged| judged.check(&text));
    }
}
