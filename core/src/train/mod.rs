//! Counts → merges: the best pair of tokens becomes one token, again and again, in a text of every distinct pre-token once.
//!
//! Invariant: pairs are merged in the order of their score, then the smaller left id, then the smaller right id (the order of
//! `tokenizers`). A queue entry whose score is out of date is skipped. One thread learns (docs/design/tried.md has the reasons).
//! Cost: O(bytes of distinct pre-tokens) at the start, and again each time the index has left out too much (seldom; at most 31
//! times). Then each merge costs the places of its pair.

pub(crate) mod pair_map;
pub mod pair_queue;
pub mod pairs;
pub mod parity;
pub mod parity_queue;
pub mod score;
pub mod superwords;
pub mod words;

use crate::hash::Seed;
use crate::parallel::interrupt::{CoreError, Result, Stop};
use crate::train::pair_queue::PairQueue;
use crate::train::pairs::{Pairs, ids_of};
use crate::train::score::{ByBytesSaved, ByCount, ByWordPiece, Score, Scoring, Side};
use crate::train::superwords::Outlines;
use crate::train::words::{Found, ID_MAX, Joint, Words, WordsBuilder};
use hashbrown::HashTable;
use rustc_hash::FxHashSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// With fewer entries than this that are out of date, rebuilding the queue is not worth it.
const STALE_ENTRIES: usize = 1 << 16;

/// When the index has left out too much, it is rebuilt with its floor divided by this.
const LOWER_BY: u64 = 8;
/// The number of times that the index may be built. The last one keeps all pairs.
const N_INDEXED_MAX: u32 = 32;

/// How many merges ahead memory is prefetched: first that of the index, then that of the text.
const AHEAD: usize = 4;

/// What to learn, and when to stop.
pub struct Goal<'a> {
    /// The most tokens to learn.
    pub n_tokens_max: u64,
    /// The order in which pairs are merged.
    pub score: Score,
    /// A pair with a lower count is not merged (at least 1).
    pub pair_count_min: u64,
    /// A pair that a merge creates is considered only if it is shorter than this (`tokenizers`' max_token_length).
    pub token_bytes_max: usize,
    /// Byte strings that must not become tokens.
    pub forbidden: &'a FxHashSet<Vec<u8>>,
    /// The most words of a token, if tokens may have several (see `superwords`). No token is then made twice.
    pub words_max: Option<usize>,
    /// The number of merges between two checkpoints.
    pub checkpoint_every: Option<u64>,
}

/// The text to learn from, at the start or from an earlier call's checkpoint.
pub struct Start {
    /// The pre-tokens and their counts.
    pub words: WordsBuilder,
    /// The bytes of every token so far, by id.
    pub tokens: Vec<Vec<u8>>,
    /// The number of tokens before the first merge. Pairs of these are considered however long they are.
    pub n_first: usize,
}

/// A function that is called with the present pre-tokens and the merges of this call.
pub type Checkpoint<'a> = &'a mut (dyn FnMut(Lists, &[Merge]) -> Result<()> + Send);

/// Pre-tokens as token ids, one after another; the end of each; and its count.
pub type Lists = (Vec<u32>, Vec<i64>, Vec<u64>);

/// One merge: the ids of its two sides and of its token, and the count of its pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merge {
    /// The id of the left side.
    pub left: u32,
    /// The id of the right side.
    pub right: u32,
    /// The id of the token that the two become.
    pub token: u32,
    /// How often the pair occurred in the text.
    pub count: u64,
}

/// The progress of learning, which another thread may read.
#[derive(Default)]
pub struct Progress {
    /// The number of tokens so far.
    pub n_tokens: AtomicU64,
    /// The number of merges so far.
    pub n_merges: AtomicU64,
}

/// The 256 bytes in the order of GPT-2's byte-to-character table: printable ones first, then the rest.
pub fn byte_order() -> [u8; 256] {
    let prints = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut order = [0; 256];
    let all = (0..=255_u8).filter(prints).chain((0..=255_u8).filter(|byte| !prints(byte)));
    order.iter_mut().zip(all).for_each(|(place, byte)| *place = byte);
    order
}

/// The result of learning.
pub struct Learned {
    /// The merges, in order.
    pub merges: Vec<Merge>,
    /// The bytes of the new tokens, one after another.
    pub bytes: Vec<u8>,
    /// The length of each new token in bytes.
    pub n_bytes: Vec<u32>,
    /// The number of tokens in the text after the last merge.
    pub n_text_tokens: u64,
}

/// Learns merges. The ids of new tokens follow those in `start`.
pub fn train(
    start: Start,
    goal: &Goal,
    progress: &Progress,
    stop: &Stop,
    checkpoint: Checkpoint<'_>,
) -> Result<Learned> {
    match goal.score {
        Score::Count => Trainer::<ByCount>::new(start, goal, stop)?.learn(progress, stop, checkpoint),
        Score::WordPiece => Trainer::<ByWordPiece>::new(start, goal, stop)?.learn(progress, stop, checkpoint),
        Score::BytesSaved => Trainer::<ByBytesSaved>::new(start, goal, stop)?.learn(progress, stop, checkpoint),
    }
}

struct Trainer<'a, S: Scoring> {
    goal: &'a Goal<'a>,
    words: Words,
    pairs: Pairs,
    tokens: Tokens,
    queue: PairQueue<S::Value>,
    /// How many times the index has been built.
    n_indexed: u32,
    /// The number of places in the text at which a pair begins now.
    n_placed: usize,
    /// How often each token occurs in the text. Kept only for a score by sides.
    counts: Vec<u64>,
    /// For each token, the pairs in which it may be a side. Kept only for a score by sides.
    partners: Vec<Vec<u64>>,
}

impl<'a, S: Scoring> Trainer<'a, S> {
    fn new(start: Start, goal: &'a Goal<'a>, stop: &Stop) -> Result<Self> {
        let words = start.words.build()?;
        let tokens = Tokens::new(&start.tokens, start.n_first, goal.words_max)?;
        // The last of n merges has 2 to 10 times the count of the n-th most frequent pre-token (English, C and seven languages, n
        // from 500 to 100,000), because common pre-tokens share pairs.
        let n_learned = tokens.len().saturating_sub(pairs::N_BYTES) as u64;
        let floor = match words.count_of_nth(n_learned.saturating_add(goal.n_tokens_max).max(1)) {
            0 => 1,
            count => count.max(goal.pair_count_min),
        };
        let counts = if S::BY_SIDES { words.token_counts(tokens.len(), |id| tokens.cells(id)) } else { Vec::new() };
        let mut trainer = Self {
            goal,
            n_placed: 0,
            words,
            pairs: Pairs::default(),
            tokens,
            queue: PairQueue::new(std::iter::empty(), S::level),
            n_indexed: 0,
            counts,
            partners: Vec::new(),
        };
        trainer.index(if S::BY_COUNT { floor } else { 1 }, stop)?;
        if S::BY_SIDES {
            trainer.partners.resize_with(trainer.tokens.len(), Vec::new);
            trainer.note_partners(&trainer.pairs.iter().map(|(key, _)| key).collect::<Vec<_>>());
        }
        Ok(trainer)
    }

    /// Builds the index of the pairs with a count of at least `floor`, and the queue.
    fn index(&mut self, floor: u64, stop: &Stop) -> Result<()> {
        self.pairs = Pairs::default();
        self.queue = PairQueue::new(std::iter::empty(), S::level);
        let Self { words, tokens, goal, .. } = self;
        let (cells, check) = (|id| tokens.cells(id), || stop.check());
        let keep = |left, right| tokens.is_kept(left, right, goal.token_bytes_max);
        (self.pairs, self.n_placed) = Pairs::of(words, cells, floor, keep, check)?;
        self.n_indexed += 1;
        self.fill_queue();
        Ok(())
    }

    /// The next pair to merge, and its count. If a pair outside the index may have as high a count, the index is rebuilt.
    fn next_pair(&mut self, stop: &Stop) -> Result<Option<(u64, u64)>> {
        loop {
            let next = self.next_indexed();
            let count = next.map_or(0, |(_, count)| count);
            let least = self.goal.pair_count_min.max(1);
            if self.pairs.absent_max() < count.max(least) {
                return Ok(next);
            }
            let lower = next.map_or(u64::MAX, |_| count).min(self.pairs.floor()) / LOWER_BY;
            self.index(if self.n_indexed + 1 < N_INDEXED_MAX { lower.max(least) } else { 1 }, stop)?;
        }
    }

    fn learn(mut self, progress: &Progress, stop: &Stop, checkpoint: Checkpoint<'_>) -> Result<Learned> {
        let mut merges: Vec<Merge> = Vec::new();
        let (mut positions, mut touched, mut found) = (Vec::new(), Vec::new(), Found::default());
        let mut bytes = Vec::new();
        while self.tokens.n_learned() < self.goal.n_tokens_max {
            let Some((key, count)) = self.next_pair(stop)? else { break };
            stop.check()?;
            let (left, right) = ids_of(key);
            self.tokens.join(left, right, &mut bytes);
            let is_made = self.goal.words_max.is_some() && self.tokens.find(&bytes).is_some();
            if is_made || self.goal.forbidden.contains(&bytes) {
                continue; // it stays in the index, because later merges may still break its places
            }
            self.pairs.take(key, &mut positions);
            let n_tokens = self.tokens.len();
            let [left_cells, right_cells] = [left, right].map(|id| self.tokens.cells(id));
            let token = self.tokens.id_of(&bytes, left_cells + right_cells)?;
            let is_new = token as usize == n_tokens;
            let joint = Joint { left, right, token, left_cells, right_cells };
            let tokens = &self.tokens;
            self.words.merge(&positions, &joint, |id| tokens.cells(id), || stop.check(), &mut found)?;
            let keep = |left, right| tokens.is_kept(left, right, self.goal.token_bytes_max);
            self.pairs.change(&joint, is_new, &found, keep, &mut touched)?;
            self.n_placed -= found.n_places;
            self.push(&joint, found.count, &touched);
            self.pairs.compact(&self.words, self.n_placed, |id| self.tokens.cells(id), || stop.check())?;
            merges.push(Merge { left, right, token, count });
            progress.n_tokens.store(self.tokens.n_learned(), Ordering::Relaxed);
            progress.n_merges.store(merges.len() as u64, Ordering::Relaxed);
            if self.goal.checkpoint_every.is_some_and(|every| (merges.len() as u64).is_multiple_of(every)) {
                checkpoint(self.words.lists(|id| self.tokens.cells(id)), &merges)?;
            }
        }
        let counts = self.words.token_counts(self.tokens.len(), |id| self.tokens.cells(id));
        let (bytes, n_bytes) = self.tokens.into_new();
        Ok(Learned { merges, bytes, n_bytes, n_text_tokens: counts.iter().sum() })
    }

    /// The next pair of the index to merge, and its count.
    fn next_indexed(&mut self) -> Option<(u64, u64)> {
        loop {
            if let Some(key) = self.queue.coming(2 * AHEAD) {
                self.pairs.prefetch(key);
            }
            if let Some(position) = self.queue.coming(AHEAD).and_then(|key| self.pairs.only_position(key)) {
                self.words.prefetch(position);
            }
            let (value, key) = self.queue.pop()?;
            let Some(count) = self.pairs.count(key).filter(|&count| count >= self.goal.pair_count_min) else {
                continue;
            };
            let now = self.value(key, count);
            if now == value {
                return Some((key, count));
            }
            // A score by sides is pushed again at every change. Other scores only fall, so pushing again here suffices.
            if !S::BY_SIDES {
                self.queue.push(now, key, S::level);
            }
        }
    }

    fn value(&self, key: u64, count: u64) -> S::Value {
        let side = |id: u32| Side {
            count: if S::BY_SIDES { self.counts[id as usize] } else { 0 },
            n_bytes: self.tokens.n_bytes(id),
        };
        let (left, right) = ids_of(key);
        S::value(count, side(left), side(right))
    }

    /// Pushes the pairs whose score may have risen.
    fn push(&mut self, joint: &Joint, count: u64, touched: &[u64]) {
        if S::BY_SIDES {
            self.counts.resize(self.tokens.len(), 0);
            self.partners.resize_with(self.tokens.len(), Vec::new);
            self.counts[joint.left as usize] -= count;
            self.counts[joint.right as usize] -= count;
            self.counts[joint.token as usize] += count;
            self.note_partners(touched);
            for id in [joint.left, joint.right, joint.token] {
                let mut keys = std::mem::take(&mut self.partners[id as usize]);
                keys.retain(|&key| self.pairs.count(key).is_some());
                keys.iter().for_each(|&key| self.push_one(key));
                self.partners[id as usize] = keys;
            }
        } else {
            touched.iter().for_each(|&key| self.push_one(key));
        }
        if self.queue.n_entries() > 4 * self.pairs.n_pairs() + STALE_ENTRIES {
            self.fill_queue();
        }
    }

    fn push_one(&mut self, key: u64) {
        if let Some(count) = self.pairs.count(key).filter(|&count| count >= self.goal.pair_count_min) {
            self.queue.push(self.value(key, count), key, S::level);
        }
    }

    /// Rebuilds the queue without out-of-date entries.
    fn fill_queue(&mut self) {
        let enough = self.pairs.iter().filter(|&(_, count)| count >= self.goal.pair_count_min);
        self.queue = PairQueue::new(enough.map(|(key, count)| (self.value(key, count), key)), S::level);
    }

    fn note_partners(&mut self, keys: &[u64]) {
        for &key in keys {
            let (left, right) = ids_of(key);
            self.partners[left as usize].push(key);
            if right != left {
                self.partners[right as usize].push(key);
            }
        }
    }
}

/// The bytes of all tokens, and the id for given bytes.
struct Tokens {
    /// The bytes of all tokens, one after another, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    ids: HashTable<u32>,
    seed: Seed,
    /// The number of cells that each takes in the text, in an array of its own for the cache: one for each byte, or with outlines
    /// one for each token of the start, which saves memory. Then no token is made in two ways, and so with two numbers of cells.
    cells: Vec<u32>,
    outlines: Option<Outlines>,
    n_first: usize,
    n_start: usize,
}

impl Tokens {
    fn new(tokens: &[Vec<u8>], n_first: usize, words_max: Option<usize>) -> Result<Self> {
        let mut all = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            ids: HashTable::new(),
            seed: Seed::default(),
            cells: Vec::new(),
            outlines: words_max.map(Outlines::new),
            n_first,
            n_start: tokens.len(),
        };
        for token in tokens {
            if token.is_empty() {
                return Err(CoreError::Tokenizer("a token has no bytes.".into()));
            }
            let cells = if words_max.is_some() { 1 } else { token.len() };
            all.add(token, all.seed.hash_long(token), cells)?;
        }
        Ok(all)
    }

    fn len(&self) -> usize {
        self.cells.len()
    }

    fn n_learned(&self) -> u64 {
        (self.len() - self.n_start) as u64
    }

    #[inline]
    fn cells(&self, id: u32) -> usize {
        self.cells[id as usize] as usize
    }

    fn n_bytes(&self, id: u32) -> usize {
        self.of(id).len()
    }

    #[inline]
    fn is_kept(&self, left: u32, right: u32, bytes_max: usize) -> bool {
        let is_first = (left as usize) < self.n_first && (right as usize) < self.n_first;
        let is_short = is_first || bytes_max == usize::MAX || self.n_bytes(left) + self.n_bytes(right) < bytes_max;
        is_short && self.outlines.as_ref().is_none_or(|outlines| outlines.may_join(left, right))
    }

    fn of(&self, id: u32) -> &[u8] {
        let start = (id as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[id as usize]]
    }

    /// Puts the joined bytes of two tokens into `joined`.
    fn join(&self, left: u32, right: u32, joined: &mut Vec<u8>) {
        joined.clear();
        joined.extend_from_slice(self.of(left));
        joined.extend_from_slice(self.of(right));
    }

    /// The id of the token with these bytes, if there is one.
    fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.ids.find(self.seed.hash_long(bytes), |&id| self.of(id) == bytes).copied()
    }

    /// The id of the token with these bytes, which may be new. Two pairs with the same joined bytes are one token. `cells`: the
    /// number that it takes in the text.
    fn id_of(&mut self, bytes: &[u8], cells: usize) -> Result<u32> {
        match self.find(bytes) {
            Some(id) => Ok(id),
            None => self.add(bytes, self.seed.hash_long(bytes), cells),
        }
    }

    /// The bytes of the new tokens, one after another, and the length of each.
    fn into_new(self) -> (Vec<u8>, Vec<u32>) {
        let n_bytes = (self.n_start..self.len()).map(|id| self.n_bytes(id as u32) as u32).collect();
        let Self { mut bytes, ends, n_start, .. } = self;
        bytes.drain(..n_start.checked_sub(1).map_or(0, |last| ends[last]));
        (bytes, n_bytes)
    }

    /// Adds a token. Of two tokens with the same bytes, look-ups find the later one.
    fn add(&mut self, bytes: &[u8], hash: u64, cells: usize) -> Result<u32> {
        let id = u32::try_from(self.len()).ok().filter(|&id| id < ID_MAX);
        let id = id.ok_or_else(|| CoreError::Tokenizer("more than 2^30 tokens were asked for.".to_string()))?;
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.cells.push(cells as u32);
        if let Some(outlines) = &mut self.outlines {
            outlines.add(bytes);
        }
        let mut ids = std::mem::take(&mut self.ids);
        match ids.find_mut(hash, |&id| self.of(id) == bytes) {
            Some(earlier) => *earlier = id,
            None => _ = ids.insert_unique(hash, id, |&id| self.seed.hash_long(self.of(id))),
        }
        self.ids = ids;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u32 = 64; // the index of "a" in byte_order

    /// The merges of random short words. `floor`: the floor of the first index.
    fn learn_at_random(seed: u64, floor: Option<u64>) -> Vec<Merge> {
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let tokens: Vec<Vec<u8>> = byte_order().iter().map(|&byte| vec![byte]).collect();
        let mut words = WordsBuilder::default();
        let n_words = 2 + random(20);
        for _ in 0..n_words {
            let ids: Vec<u32> = (0..1 + random(12)).map(|_| A + random(2) as u32).collect();
            words.add(ids.into_iter(), 1 + random(40), |_| 1).unwrap();
        }
        let forbidden = (0..random(2)).map(|_| b"ab".to_vec()).collect();
        let goal = Goal {
            n_tokens_max: 1 + random(n_words),
            score: Score::Count,
            pair_count_min: 1 + random(3),
            token_bytes_max: [4, usize::MAX][random(2) as usize],
            forbidden: &forbidden,
            words_max: None,
            checkpoint_every: None,
        };
        let stop = Stop::default();
        let mut trainer = Trainer::<ByCount>::new(Start { words, tokens, n_first: 256 }, &goal, &stop).unwrap();
        if let Some(floor) = floor {
            trainer.index(floor, &stop).unwrap();
        }
        trainer.learn(&Progress::default(), &stop, &mut |_, _| Ok(())).unwrap().merges
    }

    #[test]
    fn what_the_index_leaves_out_changes_no_merge() {
        for seed in 0..300 {
            let expected = learn_at_random(seed, Some(1));
            assert_eq!(learn_at_random(seed, None), expected, "{seed}");
            for floor in [20, 1 << 20] {
                assert_eq!(learn_at_random(seed, Some(floor)), expected, "{seed} {floor}");
            }
        }
    }
}
