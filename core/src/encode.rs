//! Text → ids: added tokens are found, the rest is split, and each pre-token is looked up or merged.
//!
//! Invariant: the ids' bytes, joined, are the text's; a byte that no token stands for is an error, never left out.
//! Cost: a look-up for a pre-token that is a token or was seen lately, else O(n log n) for its n bytes.

use crate::decode::Decoder;
use crate::guard::{CoreError, Result, Stop, cut, in_threads};
use crate::merge::{MergeTable, Scratch};
use crate::pattern::Pattern;
use aho_corasick::{AhoCorasick, MatchKind};
use rustc_hash::FxHashMap;
use std::sync::Mutex;

/// Pre-tokens longer than this are merged anew each time.
const CACHED_BYTES_MAX: usize = 64;
/// A worker's memory of merged pre-tokens is emptied when it has so many: at most about 32 MB.
const CACHED_MAX: usize = 1 << 17;

/// A merge of the vocabulary; lowest rank first.
pub struct Rule {
    pub left: u32,
    pub right: u32,
    pub rank: u32,
    pub token: u32,
}

/// A token that is not made by merges; with `in_text`, wherever its text stands it is this token.
pub struct Added<'a> {
    pub id: u32,
    pub bytes: &'a [u8],
    pub in_text: bool,
}

/// A vocabulary, ready to encode and decode.
pub struct Encoder {
    pattern: Pattern,
    merges: MergeTable,
    byte_ids: [Option<u32>; 256],
    /// Pre-tokens that are one token: those that their own merges lead to, or all, when merges are to be ignored for them.
    whole: FxHashMap<Box<[u8]>, u32>,
    added: Option<(AhoCorasick, Vec<u32>)>,
    pub decoder: Decoder,
    /// Workers that wait for their next call.
    workers: Mutex<Vec<Worker>>,
}

/// What one thread needs of its own.
struct Worker {
    pattern: Pattern,
    scratch: Scratch,
    cache: FxHashMap<Box<[u8]>, (u32, u32)>,
    cached: Vec<u32>,
}

impl Encoder {
    /// Checks the vocabulary: every id and every token once, every merge's bytes those of its token.
    pub fn new(
        pattern: Pattern,
        vocabulary: &[(u32, &[u8])],
        rules: &[Rule],
        added: &[Added],
        ignore_merges: bool,
    ) -> Result<Self> {
        let tokens: Vec<_> = vocabulary.iter().copied().chain(added.iter().map(|one| (one.id, one.bytes))).collect();
        let decoder = Decoder::new(tokens.into_iter())?;
        let mut whole: FxHashMap<Box<[u8]>, u32> = FxHashMap::default();
        let mut byte_ids = [None; 256];
        for &(id, bytes) in vocabulary {
            if let Some(other) = whole.insert(bytes.into(), id) {
                return Err(CoreError::Tokenizer(format!(
                    "the ids {other} and {id} stand for the same token {:?}.",
                    lossy(bytes)
                )));
            }
            if let [byte] = bytes {
                byte_ids[*byte as usize] = Some(id);
            }
        }
        let mut encoder = Self {
            pattern,
            merges: merge_table(&decoder, rules)?,
            byte_ids,
            whole,
            added: added_tokens(added)?,
            decoder,
            workers: Mutex::default(),
        };
        if !ignore_merges {
            encoder.keep_whole_what_merges_lead_to();
        }
        Ok(encoder)
    }

    fn keep_whole_what_merges_lead_to(&mut self) {
        let mut whole = std::mem::take(&mut self.whole);
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        whole.retain(|bytes, id| {
            out.clear();
            self.merge(bytes, &mut scratch, &mut out).is_ok() && out == [*id]
        });
        self.whole = whole;
    }

    /// Appends the ids of a text to `out`.
    pub fn encode(&self, text: &str, stop: &Stop, out: &mut Vec<u32>) -> Result<()> {
        let mut worker = self.hire();
        let done = self.encode_with(&mut worker, text, stop, out);
        self.release(worker);
        done
    }

    /// The ids of texts, `text(i)` for i in 0..n, each ended by `end_id` if there is one: all ids, and each text's end in
    /// them.
    pub fn encode_batch<'t>(
        &self,
        n: usize,
        text: impl Fn(usize) -> &'t str + Sync,
        bytes_before: impl Fn(usize) -> usize,
        end_id: Option<u32>,
        threads: usize,
        stop: &Stop,
    ) -> Result<(Vec<u32>, Vec<i64>)> {
        let parts = cut(n, threads.max(1), bytes_before);
        let encoded = in_threads(parts, |part| {
            let mut worker = self.hire();
            let (mut ids, mut ends) = (Vec::new(), Vec::with_capacity(part.len()));
            for i in part {
                if i % 64 == 0 {
                    stop.check()?;
                }
                self.encode_with(&mut worker, text(i), stop, &mut ids).map_err(|error| match error {
                    CoreError::Tokenizer(what) => CoreError::Tokenizer(format!("text {i}: {what}")),
                    CoreError::Pattern(what) => CoreError::Pattern(format!("text {i}: {what}")),
                    other => other,
                })?;
                ids.extend(end_id);
                ends.push(ids.len() as i64);
            }
            self.release(worker);
            Ok((ids, ends))
        })?;
        let mut encoded = encoded.into_iter();
        let (mut ids, mut ends) = encoded.next().unwrap_or_default();
        for (more_ids, more_ends) in encoded {
            let before = ids.len() as i64;
            ids.extend(more_ids);
            ends.extend(more_ends.into_iter().map(|end| end + before));
        }
        Ok((ids, ends))
    }

    fn hire(&self) -> Worker {
        let waiting = self.workers.lock().ok().and_then(|mut workers| workers.pop());
        waiting.unwrap_or_else(|| Worker {
            pattern: self.pattern.clone(),
            scratch: Scratch::default(),
            cache: FxHashMap::default(),
            cached: Vec::new(),
        })
    }

    fn release(&self, worker: Worker) {
        if let Ok(mut workers) = self.workers.lock() {
            workers.push(worker);
        }
    }

    fn encode_with(&self, worker: &mut Worker, text: &str, stop: &Stop, out: &mut Vec<u32>) -> Result<()> {
        let mut start = 0;
        if let Some((finder, ids)) = &self.added {
            for found in finder.find_iter(text) {
                self.encode_part(worker, text, start, found.start(), stop, out)?;
                out.push(ids[found.pattern().as_usize()]);
                start = found.end();
            }
        }
        self.encode_part(worker, text, start, text.len(), stop, out)
    }

    fn encode_part(
        &self,
        worker: &mut Worker,
        text: &str,
        start: usize,
        end: usize,
        stop: &Stop,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let Worker { pattern, scratch, cache, cached } = worker;
        let part = &text[start..end];
        pattern.split(part, stop, &mut |piece| {
            let bytes = piece.as_bytes();
            if let Some(&id) = self.whole.get(bytes) {
                out.push(id);
                return Ok(());
            }
            if bytes.len() > CACHED_BYTES_MAX {
                return self.merge_at(text, bytes, scratch, out);
            }
            if let Some(&(from, to)) = cache.get(bytes) {
                out.extend_from_slice(&cached[from as usize..to as usize]);
                return Ok(());
            }
            let before = out.len();
            self.merge_at(text, bytes, scratch, out)?;
            if cache.len() >= CACHED_MAX {
                cache.clear();
                cached.clear();
            }
            let from = cached.len() as u32;
            cached.extend_from_slice(&out[before..]);
            cache.insert(bytes.into(), (from, cached.len() as u32));
            Ok(())
        })
    }

    /// Merges a pre-token of `text`; a byte without a token is named with its place in the text.
    fn merge_at(&self, text: &str, piece: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<()> {
        if piece.len() >= u32::MAX as usize {
            return Err(CoreError::Tokenizer(format!("a pre-token has {} bytes; at most 2^32 - 2.", piece.len())));
        }
        self.merge(piece, scratch, out).map_err(|at| {
            let offset = piece.as_ptr().addr() - text.as_ptr().addr() + at;
            CoreError::Tokenizer(format!(
                "the vocabulary has no token for the byte 0x{:02x} at byte {offset}. Use a tokenizer with all 256 bytes.",
                piece[at]
            ))
        })
    }

    /// Appends the ids of a pre-token; the place of a byte without a token is the error.
    fn merge(&self, piece: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) -> std::result::Result<(), usize> {
        if let Some(at) = piece.iter().position(|&byte| self.byte_ids[byte as usize].is_none()) {
            return Err(at);
        }
        let ids = piece.iter().map(|&byte| self.byte_ids[byte as usize].unwrap_or_default());
        scratch.merge(&self.merges, ids, out);
        Ok(())
    }
}

fn merge_table(decoder: &Decoder, rules: &[Rule]) -> Result<MergeTable> {
    let mut table = MergeTable::default();
    for (i, rule) in rules.iter().enumerate() {
        let known = |id: u32| {
            decoder
                .token(id)
                .ok_or_else(|| CoreError::Tokenizer(format!("merge {i}: id {id} is not in the vocabulary.")))
        };
        let joined = [known(rule.left)?, known(rule.right)?].concat();
        if known(rule.token)? != joined {
            return Err(CoreError::Tokenizer(format!(
                "merge {i}: {:?} is not the token with id {}, into which it would be merged.",
                lossy(&joined),
                rule.token
            )));
        }
        if !table.insert(rule.left, rule.right, rule.rank, rule.token) {
            return Err(CoreError::Tokenizer(format!("merge {i}: the pair {:?} is merged twice.", lossy(&joined))));
        }
    }
    Ok(table)
}

fn added_tokens(added: &[Added]) -> Result<Option<(AhoCorasick, Vec<u32>)>> {
    let in_text: Vec<_> = added.iter().filter(|one| one.in_text).collect();
    if in_text.is_empty() {
        return Ok(None);
    }
    let finder = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(in_text.iter().map(|one| one.bytes))
        .map_err(|error| CoreError::Tokenizer(format!("the added tokens cannot be searched for: {error}.")))?;
    Ok(Some((finder, in_text.iter().map(|one| one.id).collect())))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [(u32, &[u8]); 6] = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"ab"), (4, b"bc"), (5, b"abc")];
    const RULES: [(u32, u32, u32, u32); 3] = [(0, 1, 0, 3), (1, 2, 1, 4), (0, 4, 2, 5)];

    fn rules() -> Vec<Rule> {
        RULES.iter().map(|&(left, right, rank, token)| Rule { left, right, rank, token }).collect()
    }

    fn encoder(added: &[Added], ignore_merges: bool) -> Encoder {
        Encoder::new(Pattern::new(&["[a-c]+"]).unwrap(), &TOKENS, &rules(), added, ignore_merges).unwrap()
    }

    fn encode(encoder: &Encoder, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        encoder.encode(text, &Stop::default(), &mut ids).map(|()| ids)
    }

    #[test]
    fn merges_decide_even_against_a_token_of_the_whole_pretoken() {
        assert_eq!(encode(&encoder(&[], false), "abc"), Ok(vec![3, 2]));
        assert_eq!(encode(&encoder(&[], true), "abc"), Ok(vec![5]));
    }

    #[test]
    fn a_pretoken_seen_before_gives_the_same_ids() {
        let encoder = encoder(&[], false);
        assert_eq!(encode(&encoder, "cab"), encode(&encoder, "cab"));
        assert_eq!(encode(&encoder, "cab"), Ok(vec![2, 3]));
    }

    #[test]
    fn added_tokens_are_found_longest_first_and_only_when_they_may_be_in_text() {
        let added = [
            Added { id: 7, bytes: b"<x>", in_text: true },
            Added { id: 8, bytes: b"<x><x>", in_text: true },
            Added { id: 9, bytes: b"abc", in_text: false },
        ];
        assert_eq!(encode(&encoder(&added, false), "a<x><x><x>abc"), Ok(vec![0, 8, 7, 3, 2]));
    }

    #[test]
    fn a_byte_without_a_token_is_named_with_its_place() {
        let found = encode(&encoder(&[], false), "ab c!");
        assert!(matches!(found, Err(CoreError::Tokenizer(text)) if text.contains("0x20 at byte 2")));
    }

    #[test]
    fn batches_are_the_same_for_any_number_of_threads() {
        let encoder = encoder(&[], false);
        let texts = ["abc", "", "cab", "bb"];
        for threads in 1..5 {
            let found = encoder.encode_batch(4, |i| texts[i], |i| i, Some(6), threads, &Stop::default());
            assert_eq!(found, Ok((vec![3, 2, 6, 6, 2, 3, 6, 1, 1, 6], vec![3, 4, 7, 10])));
        }
    }

    #[test]
    fn a_vocabulary_that_contradicts_itself_is_refused() {
        let pattern = || Pattern::new::<&str>(&[]).unwrap();
        let wrong = |vocabulary: &[(u32, &[u8])], rules: &[Rule]| {
            Encoder::new(pattern(), vocabulary, rules, &[], false).map(|_| ()).unwrap_err()
        };
        let says = |error: CoreError, part: &str| matches!(error, CoreError::Tokenizer(text) if text.contains(part));
        assert!(says(wrong(&[(0, b"a"), (1, b"a")], &[]), "ids 0 and 1"));
        assert!(says(wrong(&[(0, b"a"), (0, b"b")], &[]), "id 0"));
        assert!(says(wrong(&[(0, b"a")], &[Rule { left: 0, right: 9, rank: 0, token: 0 }]), "id 9"));
        assert!(says(wrong(&TOKENS, &[Rule { left: 0, right: 1, rank: 0, token: 4 }]), "\"ab\" is not"));
    }
}
