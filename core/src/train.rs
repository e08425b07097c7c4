//! Counts → merges: byte-pair encoding learned from every distinct pre-token once.
//!
//! Invariants: a pair's count is the number of places where it stands now, overlaps counted ("aaa" has "aa" twice), times
//! the counts of their pre-tokens; its list names every pre-token that holds it, and maybe some that no longer do.
//! Ties: the higher count, then the smaller left id, then the smaller right id (the order of `tokenizers`).
//! Cost: O(bytes of distinct pre-tokens) to begin with, then for each merge the pre-tokens on its pair's list.

use crate::guard::{CoreError, Result, Stop, cut, in_threads};
use crate::merge::key_of;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

/// What to learn.
pub struct Goal<'a> {
    /// Learned tokens at most.
    pub n_tokens_max: u64,
    /// A pair that counts less is not merged (at least 1).
    pub pair_count_min: u64,
    /// A pair that arises beside a merge is looked at only while it is shorter than this (`tokenizers`' max_token_length).
    pub token_bytes_max: usize,
    /// Bytes that no token may have.
    pub forbidden: &'a [Vec<u8>],
    /// For the first count of pairs.
    pub threads: usize,
}

/// One merge: the ids of its two sides, of its token, and what it counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub token: u32,
    pub count: u64,
}

/// How far learning is, for another thread to read.
#[derive(Default)]
pub struct Progress {
    pub n_tokens: AtomicU64,
    pub n_merges: AtomicU64,
}

#[derive(Default)]
struct Pair {
    count: u64,
    words: Vec<u32>,
}

type Pairs = FxHashMap<u64, Pair>;

/// The 256 bytes in the order of GPT-2's byte-to-character table: those that print first, then the rest.
pub fn byte_order() -> [u8; 256] {
    let prints = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut order = [0; 256];
    let all = (0..=255_u8).filter(prints).chain((0..=255_u8).filter(|byte| !prints(byte)));
    order.iter_mut().zip(all).for_each(|(place, byte)| *place = byte);
    order
}

/// The merges learned from pre-tokens (distinct) and their counts, in order. Ids 0..256 are the bytes in `byte_order`.
pub fn train(pretokens: &[&[u8]], counts: &[u64], goal: &Goal, progress: &Progress, stop: &Stop) -> Result<Vec<Merge>> {
    if pretokens.len() >= u32::MAX as usize || pretokens.iter().any(|pretoken| pretoken.len() >= u32::MAX as usize) {
        return Err(CoreError::Counts("more than 2^32 - 2 pre-tokens, or bytes in one of them.".to_string()));
    }
    let mut words = Words::new(pretokens, counts);
    let mut tokens = Tokens::new();
    let forbidden: FxHashSet<&[u8]> = goal.forbidden.iter().map(Vec::as_slice).collect();
    let mut pairs = count_pairs(&words, goal.threads, stop)?;
    let mut heap: BinaryHeap<(u64, Reverse<u64>)> =
        pairs.iter().map(|(&key, pair)| (pair.count, Reverse(key))).collect();
    let mut merges = Vec::new();
    let mut changes = Changes::default();
    while tokens.n_learned() < goal.n_tokens_max {
        let Some((count, Reverse(key))) = heap.pop() else { break };
        let Entry::Occupied(entry) = pairs.entry(key) else { continue };
        if entry.get().count != count {
            heap.push((entry.get().count, Reverse(key)));
            continue;
        }
        if count < goal.pair_count_min.max(1) {
            break;
        }
        let pair = entry.remove();
        let (left, right) = ids_of(key);
        let bytes = tokens.joined(left, right);
        if forbidden.contains(bytes.as_slice()) {
            continue;
        }
        let token = tokens.id_of(bytes)?;
        merges.push(Merge { left, right, token, count });
        for (i, &word) in pair.words.iter().enumerate() {
            if i % 4096 == 0 {
                stop.check()?;
            }
            words.merge(word, left, right, token, &mut changes)?;
        }
        changes.apply(&mut pairs, &mut heap, &tokens, goal.token_bytes_max)?;
        progress.n_tokens.store(tokens.n_learned(), Ordering::Relaxed);
        progress.n_merges.store(merges.len() as u64, Ordering::Relaxed);
    }
    Ok(merges)
}

/// Pre-tokens as ids: one flat array, a span a pre-token, merged in place.
struct Words {
    ids: Vec<u32>,
    starts: Vec<usize>,
    lengths: Vec<u32>,
    counts: Vec<u64>,
}

impl Words {
    fn new(pretokens: &[&[u8]], counts: &[u64]) -> Self {
        let mut rank = [0_u32; 256];
        byte_order().iter().zip(0..).for_each(|(&byte, id)| rank[byte as usize] = id);
        let long = || pretokens.iter().zip(counts).filter(|(pretoken, _)| pretoken.len() > 1);
        let n_bytes = long().map(|(pretoken, _)| pretoken.len()).sum();
        let mut words = Self { ids: Vec::with_capacity(n_bytes), starts: vec![], lengths: vec![], counts: vec![] };
        for (pretoken, &count) in long() {
            words.starts.push(words.ids.len());
            words.lengths.push(pretoken.len() as u32);
            words.counts.push(count);
            words.ids.extend(pretoken.iter().map(|&byte| rank[byte as usize]));
        }
        words
    }

    /// Merges a pair in one pre-token, from left to right, and notes which pairs came and went.
    fn merge(&mut self, word: u32, left: u32, right: u32, token: u32, changes: &mut Changes) -> Result<()> {
        let w = word as usize;
        let count = self.counts[w];
        let start = self.starts[w];
        let ids = &mut self.ids[start..start + self.lengths[w] as usize];
        let (mut from, mut to) = (0, 0);
        while from < ids.len() {
            if ids[from] != left || from + 1 == ids.len() || ids[from + 1] != right {
                ids[to] = ids[from];
                from += 1;
                to += 1;
                continue;
            }
            if to > 0 {
                changes.remove(key_of(ids[to - 1], left), count)?;
                changes.add(key_of(ids[to - 1], token), count, word)?;
            }
            if let Some(&next) = ids.get(from + 2) {
                changes.remove(key_of(right, next), count)?;
                changes.add(key_of(token, next), count, word)?;
            }
            ids[to] = token;
            from += 2;
            to += 1;
        }
        self.lengths[w] = to as u32;
        Ok(())
    }
}

/// The learned tokens' bytes, and the id of each.
struct Tokens {
    bytes: Vec<Vec<u8>>,
    ids: FxHashMap<Vec<u8>, u32>,
}

impl Tokens {
    fn new() -> Self {
        let bytes: Vec<Vec<u8>> = byte_order().iter().map(|&byte| vec![byte]).collect();
        let ids = bytes.iter().cloned().zip(0..).collect();
        Self { bytes, ids }
    }

    fn n_learned(&self) -> u64 {
        self.bytes.len() as u64 - 256
    }

    fn length(&self, id: u32) -> usize {
        self.bytes[id as usize].len()
    }

    fn joined(&self, left: u32, right: u32) -> Vec<u8> {
        [self.bytes[left as usize].as_slice(), self.bytes[right as usize].as_slice()].concat()
    }

    /// The id of a token with these bytes: two pairs that join to the same bytes are one token.
    fn id_of(&mut self, bytes: Vec<u8>) -> Result<u32> {
        if let Some(&id) = self.ids.get(&bytes) {
            return Ok(id);
        }
        let id = u32::try_from(self.bytes.len())
            .map_err(|_| CoreError::Tokenizer("more than 2^32 tokens were asked for.".to_string()))?;
        self.ids.insert(bytes.clone(), id);
        self.bytes.push(bytes);
        Ok(id)
    }
}

/// What one merge changes, gathered so that each pair is looked up once.
#[derive(Default)]
struct Changes {
    added: Pairs,
    removed: FxHashMap<u64, u64>,
}

impl Changes {
    fn add(&mut self, key: u64, count: u64, word: u32) -> Result<()> {
        note(self.added.entry(key).or_default(), count, word)
    }

    fn remove(&mut self, key: u64, count: u64) -> Result<()> {
        let removed = self.removed.entry(key).or_default();
        *removed = plus(*removed, count)?;
        Ok(())
    }

    fn apply(
        &mut self,
        pairs: &mut Pairs,
        heap: &mut BinaryHeap<(u64, Reverse<u64>)>,
        tokens: &Tokens,
        token_bytes_max: usize,
    ) -> Result<()> {
        let mut touched = Vec::with_capacity(self.added.len());
        for (key, new) in self.added.drain() {
            let (left, right) = ids_of(key);
            if tokens.length(left) + tokens.length(right) >= token_bytes_max {
                continue;
            }
            touched.push(key);
            match pairs.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(new);
                }
                Entry::Occupied(mut place) => {
                    let pair = place.get_mut();
                    pair.count = plus(pair.count, new.count)?;
                    pair.words.extend(new.words);
                    pair.words.sort_unstable();
                    pair.words.dedup();
                }
            }
        }
        for (key, count) in self.removed.drain() {
            // A pair that is not there is the merged one, or too long to be looked at.
            if let Entry::Occupied(mut place) = pairs.entry(key) {
                let pair = place.get_mut();
                pair.count = pair.count.checked_sub(count).ok_or_else(|| {
                    CoreError::Internal("a pair was removed more often than it was counted; please report it.".into())
                })?;
                if pair.count == 0 {
                    place.remove();
                }
            }
        }
        heap.extend(touched.into_iter().filter_map(|key| Some((pairs.get(&key)?.count, Reverse(key)))));
        Ok(())
    }
}

fn count_pairs(words: &Words, threads: usize, stop: &Stop) -> Result<Pairs> {
    let n_words = words.starts.len();
    let parts = cut(n_words, threads.max(1), |i| words.starts.get(i).copied().unwrap_or(words.ids.len()));
    let counted = in_threads(parts, |part| {
        let mut pairs = Pairs::default();
        for w in part {
            if w % 4096 == 0 {
                stop.check()?;
            }
            let start = words.starts[w];
            for pair in words.ids[start..start + words.lengths[w] as usize].windows(2) {
                note(pairs.entry(key_of(pair[0], pair[1])).or_default(), words.counts[w], w as u32)?;
            }
        }
        Ok(pairs)
    })?;
    let mut counted = counted.into_iter();
    let mut all = counted.next().unwrap_or_default();
    for (key, more) in counted.flatten() {
        let pair = all.entry(key).or_default();
        pair.count = plus(pair.count, more.count)?;
        pair.words.extend(more.words);
    }
    Ok(all)
}

/// Counts a pair once more, in a pre-token that comes after those on its list or is the last of them.
fn note(pair: &mut Pair, count: u64, word: u32) -> Result<()> {
    pair.count = plus(pair.count, count)?;
    if pair.words.last() != Some(&word) {
        pair.words.push(word);
    }
    Ok(())
}

fn plus(count: u64, more: u64) -> Result<u64> {
    count.checked_add(more).ok_or_else(|| CoreError::Counts("the count of a pair exceeds 64 bits.".to_string()))
}

fn ids_of(key: u64) -> (u32, u32) {
    ((key >> 32) as u32, key as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    const A: u32 = 64; // the place of "a" in byte_order

    fn learn(words: &[(&str, u64)], n_tokens_max: u64, change: impl FnOnce(&mut Goal)) -> Vec<(u32, u32, u32, u64)> {
        let pretokens: Vec<&[u8]> = words.iter().map(|(word, _)| word.as_bytes()).collect();
        let counts: Vec<u64> = words.iter().map(|(_, count)| *count).collect();
        let mut goal =
            Goal { n_tokens_max, pair_count_min: 1, token_bytes_max: usize::MAX, forbidden: &[], threads: 1 };
        change(&mut goal);
        let merges = train(&pretokens, &counts, &goal, &Progress::default(), &Stop::default()).unwrap();
        merges.iter().map(|one| (one.left, one.right, one.token, one.count)).collect()
    }

    #[test]
    fn the_bytes_that_print_come_first() {
        let order = byte_order();
        assert_eq!((order[0], order[A as usize], order[187], order[188], order[255]), (b'!', b'a', 255, 0, 173));
    }

    #[test]
    fn the_most_frequent_pair_is_merged_first_and_equal_counts_merge_the_smaller_pair() {
        assert_eq!(learn(&[("ab", 3), ("bc", 5)], 1, |_| ()), [(A + 1, A + 2, 256, 5)]);
        assert_eq!(learn(&[("bc", 5), ("ab", 5)], 1, |_| ()), [(A, A + 1, 256, 5)]);
    }

    #[test]
    fn overlapping_pairs_are_counted_and_merged_from_the_left() {
        assert_eq!(learn(&[("aaa", 1)], 9, |_| ()), [(A, A, 256, 2), (256, A, 257, 1)]);
    }

    #[test]
    fn a_pair_that_counts_too_little_ends_the_learning() {
        assert_eq!(learn(&[("ab", 3), ("cd", 1)], 9, |goal| goal.pair_count_min = 2), [(A, A + 1, 256, 3)]);
    }

    #[test]
    fn tokens_stay_shorter_than_their_maximum() {
        assert_eq!(learn(&[("abc", 3)], 9, |goal| goal.token_bytes_max = 3), [(A, A + 1, 256, 3)]);
        assert_eq!(learn(&[("abc", 3)], 9, |goal| goal.token_bytes_max = 4).len(), 2);
    }

    #[test]
    fn forbidden_bytes_are_not_learned() {
        static FORBIDDEN: LazyLock<[Vec<u8>; 1]> = LazyLock::new(|| [b"ab".to_vec()]);
        assert_eq!(learn(&[("ab", 3), ("bc", 1)], 9, |goal| goal.forbidden = &*FORBIDDEN), [(A + 1, A + 2, 256, 1)]);
    }

    #[test]
    fn counts_above_2_to_the_31_are_right() {
        assert_eq!(learn(&[("aa", 2_199_978_000), ("xy", 10)], 1, |_| ())[0].3, 2_199_978_000);
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let words = [("banana", 3), ("bandana", 2), ("ananas", 7), ("nab", 1)];
        assert_eq!(learn(&words, 9, |goal| goal.threads = 3), learn(&words, 9, |_| ()));
    }
}
