//! Random input to the core, with the checks of arithmetic that a release build leaves out. TOKENMILL_FUZZ_SECONDS: how long each
//! test runs (2 by default). TOKENMILL_FUZZ_SEED: the first seed. A failure names its seed.

use crate::decode::Decoder;
use crate::documents::json_lines;
use crate::memory::out_buffer::Tail;
use crate::parallel::interrupt::Stop;
use crate::split::named::NAMED;
use crate::split::pattern::Pattern;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

#[rustfmt::skip]
const PIECES: [&str; 28] = [
    "a", "B", "the", " ", "  ", "\n", "\r\n", "\t", "'s", "'", "1", "2345", "é", "e\u{301}", "東", "🙂", "\u{2028}", "\u{85}", "\0", "ǅ",
    "\"", "\\", "{\"text\": \"", "\"}\n", "\"id\": ", "\\ud83d\\ude42", "\\u00e9", "[{",
];
const REGEX_PIECES: [&str; 18] = [
    "a", r"\p{L}", r"\s", r"[^\s\d]", "(?i:b)", "(?=1)", r"(?!\S)", "(", ")", "|", "+", "*", "?", "{1,3}", "{2}+", "^",
    r"\z", r"\b",
];

/// A random number generator (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }

    fn text(&mut self, pieces: &[&str], n_max: usize) -> String {
        (0..self.below(n_max + 1)).map(|_| pieces[self.below(pieces.len())]).collect()
    }
}

fn fuzz(attempt: impl Fn(&mut Chance)) {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (mut seed, end) =
        (number("TOKENMILL_FUZZ_SEED", 1), Instant::now() + Duration::from_secs(number("TOKENMILL_FUZZ_SECONDS", 2)));
    while Instant::now() < end {
        let mut chance = Chance((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| attempt(&mut chance))) {
            eprintln!("find with TOKENMILL_FUZZ_SEED={seed}");
            resume_unwind(panic);
        }
        seed += 1;
    }
    println!("up to seed {seed}");
}

#[test]
fn fuzzed_lines_of_json_are_what_another_reader_finds_in_them() {
    fuzz(|chance| {
        let mut lines = String::new();
        for _ in 0..chance.below(4) {
            let parts =
                ["{\"text\": \"", &chance.text(&PIECES, 6), "\", \"id\": ", &chance.text(&PIECES[10..12], 9), "}\n"];
            for part in parts {
                lines += if chance.below(20) == 0 { PIECES[chance.below(PIECES.len())] } else { part };
            }
        }
        let Some(found) = json_lines::read(&lines, "text", &["id"]) else { return };
        let texts: String = lines
            .split('\n')
            .filter(|line| !line.trim_ascii().is_empty())
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().to_string())
            .collect();
        assert_eq!(String::from_utf8(found.texts.bytes).unwrap(), texts, "{lines:?}");
        assert_eq!(
            (found.texts.ends.len(), found.n_line_ends),
            (found.values[0].ends.len(), lines.matches('\n').count())
        );
    });
}

#[test]
fn fuzzed_texts_are_their_pieces_joined() {
    fuzz(|chance| {
        let regex = chance.text(&REGEX_PIECES, 8);
        let named = NAMED[chance.below(NAMED.len())].1;
        let pattern = if chance.below(2) == 0 { Pattern::new(named) } else { Pattern::new(&[&regex]) };
        let (Ok(pattern), text) = (pattern, chance.text(&PIECES, 60)) else { return };
        let mut joined = String::new();
        let split = pattern.split(&text, &Stop::default(), &mut |piece| {
            assert!(!piece.is_empty());
            joined += piece;
            Ok(())
        });
        assert!(split.is_err() || joined == text, "{regex:?} {text:?}");
    });
}

#[test]
fn fuzzed_ids_decode_to_the_bytes_of_their_tokens() {
    fuzz(|chance| {
        let texts: Vec<String> = (0..chance.below(40)).map(|_| chance.text(&PIECES, 9)).collect();
        let far = [1, 2, 1000, u32::MAX / 50][chance.below(4)];
        let tokens: Vec<(u32, &[u8])> = texts.iter().zip(0..).map(|(text, i)| (i * far, text.as_bytes())).collect();
        let Ok(decoder) = Decoder::new(tokens.iter().copied()) else { return };
        let mut ids: Vec<u32> = (0..chance.below(600)).map(|_| chance.below(texts.len().max(1)) as u32 * far).collect();
        if chance.below(4) == 0 {
            ids.push(chance.below(1 << 31) as u32);
        }
        let (known, mut out) = (ids.iter().map(|&id| decoder.token(id)).collect::<Option<Vec<_>>>(), Tail::default());
        assert_eq!(decoder.decode(&ids, &mut out).is_ok(), known.is_some());
        let Some(known) = known else { return };
        assert_eq!(out.take(), known.concat());
        assert!(decoder.decodes_to(&ids, &known, &mut Tail::default()));
    });
}
