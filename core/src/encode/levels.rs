//! Merges in two levels, for tokenizers with tokens of several words, whose pre-tokens are sentences.
//!
//! The merges of the first level are those before the first one whose token has a space behind a visible character. A sentence is
//! cut between two bytes that no token of the first level has side by side, which is between nearly all words. These pieces are
//! merged by the first level alone, mostly through the cache. Then all merges go on with the symbols of the sentence, phrase by
//! phrase: a phrase ends between two symbols that stand side by side in no token, when tokens are taken apart into symbols of the
//! first level.
//! Invariant: the ids are those of merging the bytes of the sentence in the order of ranks, because every merge of the first level
//! comes before every other one, and none of them crosses a cut. Cost: that of words, and O(n log n) for the n symbols of a
//! sentence, or O(n²) very cheap steps for up to SCANNED_MAX symbols.

use crate::encode::merge::{NO_SYMBOLS, SCANNED_MAX, merge_symbols};
use crate::encode::merge_table::{MergeTable, Rule};
use crate::encode::pretokens::TextEncoding;
use crate::memory::out_buffer::Tail;
use crate::pair::{NO_PAIR, NONE, mixed};
use crate::parallel::interrupt::{CoreError, Result, Stop};
use crate::split::pattern::Pattern;
use crate::split::sink::Sink;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The number of merges between two checks whether to stop.
const N_UNCHECKED: u32 = 1 << 12;
/// Two levels need at least so large a part of the merges in the first one: with fewer, most of them would wait for the second.
const FIRST_SHARE_MIN: usize = 4;
/// Half a megabyte: with 100,000 tokens above the first level, 2 % of the other neighbours have their bit set.
const JOINTS_BITS: u32 = 22;
/// The longest character in bytes.
const CHARACTER_BYTES_MAX: usize = 4;

/// The level above that of words. A clone shares the merges.
#[derive(Clone)]
pub struct Upper {
    /// What cuts text into sentences.
    pub pattern: Pattern,
    merges: Arc<MergeTable>,
    joints: Arc<Joints>,
}

impl Upper {
    /// The level of `pattern`. `merges`: all merges, which are the `rules`. `above`: see `first_above`.
    pub fn new(pattern: Pattern, merges: MergeTable, rules: &[Rule], above: u32) -> Self {
        Self { pattern, merges: Arc::new(merges), joints: Arc::new(Joints::new(rules, above)) }
    }
}

/// Which symbols of the first level may stand side by side in a token, as bits by their hash. A bit that is set for other symbols
/// costs time, and changes no id.
struct Joints(Vec<u64>);

impl Joints {
    /// The neighbours in the tokens above the first level. If one of these is made in two ways, or is a part of a token that is made
    /// before it, all symbols are neighbours.
    fn new(rules: &[Rule], above: u32) -> Self {
        let mut joints = Self(vec![0; 1 << (JOINTS_BITS - u64::BITS.ilog2())]);
        if joints.set_all(rules, above).is_none() {
            joints.0.fill(u64::MAX);
        }
        joints
    }

    fn set_all(&mut self, rules: &[Rule], above: u32) -> Option<()> {
        let (first, mut upper): (Vec<Rule>, Vec<Rule>) = rules.iter().partition(|rule| rule.rank < above);
        upper.sort_unstable_by_key(|rule| rule.rank);
        let mut made: FxHashSet<u32> = first.iter().map(|rule| rule.token).collect();
        let waiting: FxHashSet<u32> = upper.iter().map(|rule| rule.token).collect();
        if first.iter().any(|rule| waiting.contains(&rule.left) || waiting.contains(&rule.right)) {
            return None;
        }
        let mut edges: FxHashMap<u32, (u32, u32)> = FxHashMap::default(); // the first and last symbol of a token
        for rule in upper {
            if !made.insert(rule.token) {
                return None;
            }
            let edges_of = |id: u32| edges.get(&id).copied().or((!waiting.contains(&id)).then_some((id, id)));
            let (left, right) = (edges_of(rule.left)?, edges_of(rule.right)?);
            let (place, bit) = Self::place(left.1, right.0);
            self.0[place] |= bit;
            edges.insert(rule.token, (left.0, right.1));
        }
        Some(())
    }

    #[inline(always)]
    fn may_join(&self, left: u32, right: u32) -> bool {
        let (place, bit) = Self::place(left, right);
        self.0[place] & bit != 0
    }

    #[inline(always)]
    fn place(left: u32, right: u32) -> (usize, u64) {
        let bit = mixed(left, right) >> (u64::BITS - JOINTS_BITS);
        ((bit / u64::from(u64::BITS)) as usize, 1 << (bit % u64::from(u64::BITS)))
    }
}

/// The lowest rank above the first level; None if there is only one level. `token`: the bytes of a token.
pub fn first_above<'t>(rules: &[Rule], token: impl Fn(u32) -> &'t [u8]) -> Option<u32> {
    let above = rules.iter().filter(|rule| has_words(token(rule.token))).map(|rule| rule.rank).min()?;
    let n_first = rules.iter().filter(|rule| rule.rank < above).count();
    (n_first * FIRST_SHARE_MIN >= rules.len()).then_some(above)
}

/// Whether a space stands behind a visible character.
fn has_words(token: &[u8]) -> bool {
    let is_visible = |before: &[u8]| {
        let last = (1..=before.len().min(CHARACTER_BYTES_MAX))
            .find_map(|n| std::str::from_utf8(&before[before.len() - n..]).ok()?.chars().next());
        last.is_some_and(|character| !character.is_whitespace() && !character.is_control())
    };
    (1..token.len()).any(|at| token[at] == b' ' && is_visible(&token[..at]))
}

/// Encodes the sentences of a part of a text.
pub struct Sentences<'e, 'r, 's> {
    /// The level above that of words.
    pub upper: &'e Upper,
    /// What cuts sentences where no merge of the first level can cross.
    pub words: &'e Pattern,
    /// The encoding of the text, by the first level.
    pub encoding: &'e mut TextEncoding<'r, 's>,
    /// Memory that is used again for each sentence.
    pub scratch: &'e mut Scratch,
    /// Where the part of the text begins.
    pub start: usize,
}

impl Sink for Sentences<'_, '_, '_> {
    fn put(&mut self, from: usize, to: usize) -> Result<()> {
        let Self { upper, encoding, scratch, .. } = self;
        let first = encoding.ids.n();
        encoding.put_text(self.words, self.start + from..self.start + to)?;
        let Scratch { ids, long } = &mut **scratch;
        ids.clear();
        ids.extend_from_slice(&encoding.ids.as_slice()[first..]);
        encoding.ids.truncate(first);
        let mut from = 0;
        for to in 1..=ids.len() {
            if to == ids.len() || !upper.joints.may_join(ids[to - 1], ids[to]) {
                merge_phrase(&upper.merges, &ids[from..to], long, encoding.stop, encoding.ids)?;
                from = to;
            }
        }
        Ok(())
    }
}

/// Merges symbols, and appends the result.
fn merge_phrase(merges: &MergeTable, phrase: &[u32], long: &mut Long, stop: &Stop, out: &mut Tail<u32>) -> Result<()> {
    match *phrase {
        [only] => out.put([only], 1),
        [left, right] => match merges.get(left, right) {
            NO_PAIR => out.put([left, right], 2),
            pair => out.put([pair.token], 1),
        },
        _ if phrase.len() <= SCANNED_MAX => {
            let mut symbols = NO_SYMBOLS;
            symbols[..phrase.len()].copy_from_slice(phrase);
            let n = merge_symbols(merges, &mut symbols, phrase.len());
            out.extend(&symbols[..n]);
        }
        _ => {
            long.merge(merges, phrase, stop)?;
            out.extend(&long.symbols);
        }
    }
    Ok(())
}

/// Memory that is used again for each sentence: the symbols of its words, and what a long phrase takes.
#[derive(Default)]
pub struct Scratch {
    ids: Vec<u32>,
    long: Long,
}

/// The symbols of a long phrase as a linked list, and a heap of the pairs that can be merged. An entry of the heap is skipped if
/// its pair is gone.
#[derive(Default)]
struct Long {
    symbols: Vec<u32>,
    before: Vec<u32>,
    behind: Vec<u32>,
    heap: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Long {
    fn merge(&mut self, merges: &MergeTable, ids: &[u32], stop: &Stop) -> Result<()> {
        let Self { symbols, before, behind, heap } = self;
        let n = u32::try_from(ids.len()).ok().filter(|&n| n < NONE).ok_or_else(|| {
            let n = ids.len();
            CoreError::Tokenizer(format!("a pre-token has {n} symbols between two cuts; at most 2^32 - 2."))
        })?;
        symbols.clear();
        symbols.extend_from_slice(ids);
        before.clear();
        before.extend((0..n).map(|at| at.wrapping_sub(1)));
        behind.clear();
        behind.extend((1..n).chain([NONE]));
        heap.clear();
        heap.extend(
            ids.windows(2)
                .zip(0..)
                .map(|(two, at)| (merges.get(two[0], two[1]).rank, at))
                .filter(|&(rank, _)| rank != NO_PAIR.rank)
                .map(Reverse),
        );
        let mut n_done = 0_u32;
        while let Some(Reverse((rank, at))) = heap.pop() {
            n_done = n_done.wrapping_add(1);
            if n_done.is_multiple_of(N_UNCHECKED) {
                stop.check()?;
            }
            let right = behind[at as usize];
            if symbols[at as usize] == NONE || right == NONE {
                continue;
            }
            let pair = merges.get(symbols[at as usize], symbols[right as usize]);
            if pair.rank != rank || pair == NO_PAIR {
                continue;
            }
            let next = behind[right as usize];
            symbols[at as usize] = pair.token;
            symbols[right as usize] = NONE;
            behind[at as usize] = next;
            let mut push = |left: u32, right: u32| {
                let rank = merges.get(symbols[left as usize], symbols[right as usize]).rank;
                if rank != NO_PAIR.rank {
                    heap.push(Reverse((rank, left)));
                }
            };
            if next != NONE {
                before[next as usize] = at;
                push(at, next);
            }
            if before[at as usize] != NONE {
                push(before[at as usize], at);
            }
        }
        symbols.retain(|&id| id != NONE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Encoder;

    /// Merges naively, one merge at a time: the lowest rank first, and of equal ranks the leftmost pair.
    fn naive(rules: &[Rule], text: &[u8]) -> Vec<u32> {
        let mut ids: Vec<u32> = text.iter().map(|&byte| u32::from(byte)).collect();
        loop {
            let places = ids.windows(2).enumerate().filter_map(|(at, two)| {
                let rule = rules.iter().find(|rule| [rule.left, rule.right] == *two)?;
                Some((rule.rank, at, rule.token))
            });
            let Some((_, at, token)) = places.min() else { return ids };
            ids.splice(at..at + 2, [token]);
        }
    }

    #[test]
    fn two_levels_give_the_ids_of_one() {
        let mut state = 1_u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut n_upper = 0;
        for seed in 0..400 {
            let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
            let mut rules: Vec<Rule> = Vec::new();
            let mut usable: Vec<u32> = "ab c\u{e9}".bytes().map(u32::from).collect();
            let n_first = random(12);
            for n in 0..n_first + 1 + random(12) {
                let (left, right) = (usable[random(usable.len())], usable[random(usable.len())]);
                let joined = [&tokens[left as usize][..], &tokens[right as usize]].concat();
                let is_there = rules.iter().any(|rule| [rule.left, rule.right] == [left, right]);
                if is_there || n < n_first && has_words(&joined) {
                    continue;
                }
                let token = tokens.iter().position(|token| *token == joined).unwrap_or(tokens.len());
                if token < tokens.len() && seed % 3 > 0 {
                    continue; // only some tokens are made in two ways
                }
                if token == tokens.len() {
                    tokens.push(joined);
                    usable.push(token as u32);
                }
                rules.push(Rule { left, right, rank: n as u32, token: token as u32 });
            }
            if seed % 5 == 0 {
                for i in (1..rules.len()).rev() {
                    let (one, other) = (rules[i].rank, random(i + 1));
                    rules[i].rank = rules[other].rank;
                    rules[other].rank = one;
                }
            }
            let vocabulary: Vec<(u32, &[u8])> = (0..).zip(tokens.iter().map(Vec::as_slice)).collect();
            for steps in [&[][..], &["[^c]+"]] {
                let pattern = Pattern::new(steps).unwrap();
                let encoder = Encoder::new(pattern, &vocabulary, &rules, &[], false, None, &Stop::default()).unwrap();
                n_upper += usize::from(encoder.upper.is_some());
                for length in [0, 1, 5, 30, 300] {
                    let text: String = (0..length).map(|_| ['a', 'b', ' ', '\u{e9}'][random(4)]).collect();
                    let found = encoder.encode(&text, &Stop::default()).unwrap();
                    assert_eq!(found, naive(&rules, text.as_bytes()), "{seed} {text:?}");
                    assert_eq!(encoder.with_own_cache().encode(&text, &Stop::default()).unwrap(), found);
                }
            }
        }
        assert!(n_upper > 100, "{n_upper}");
    }

    #[test]
    fn a_token_has_words_if_a_space_stands_behind_a_visible_character() {
        assert!(["a b", " a ", "\u{e9} ", ". "].iter().all(|token| has_words(token.as_bytes())));
        assert!(["", " a", "  ", "\u{a0} ", "\n "].iter().all(|token| !has_words(token.as_bytes())));
        assert!(!has_words(b"\xa9 ")); // the end of a character alone
    }
}
