//! Tokens of several words: which pairs may join, and which parts of a text are enough to learn from.
//!
//! A word is bytes in a row without white space. A pair joins if it has at most so many words, and no ": " inside. As no token is
//! made twice, each token is one sequence of the tokens of the start, and a pair is no more frequent than any two neighbours in
//! its sequence were at the start. So a text can be cut between two tokens that are rarer there than the rarest merge, or that may
//! not join. The parts (phrases) are short, and most of them repeat.
//! Invariant: the merges of the phrases are those of the text, as long as each of them has a count of at least the floor.
//! Cost: O(1) per token. Counts of neighbours are kept by their hash alone, as upper bounds that only other pairs of the same slot
//! raise, so memory has a limit and a cut is still never wrong.

use crate::pair::mixed;
use crate::parallel::interrupt::{Result, Stop};

const N_UNCHECKED: usize = 1 << 16;

/// What joining needs to know of the tokens, by id.
pub struct Outlines {
    words_max: usize,
    all: Vec<Outline>,
}

struct Outline {
    n_words: u32,
    begins: Edge,
    ends: Edge,
    has_colon: bool,
}

/// The first or the last byte of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Blank,
    OtherSpace,
    Colon,
    Other,
}

impl Edge {
    fn of(byte: Option<&u8>) -> Self {
        match byte {
            Some(b' ') => Self::Blank,
            Some(byte) if is_space(*byte) => Self::OtherSpace,
            Some(b':') => Self::Colon,
            _ => Self::Other,
        }
    }

    fn is_word(self) -> bool {
        matches!(self, Self::Colon | Self::Other)
    }
}

/// The white space of Python's bytes.split.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 9..=13)
}

impl Outlines {
    /// Outlines without tokens. `words_max`: the most words of a token.
    pub fn new(words_max: usize) -> Self {
        Self { words_max, all: Vec::new() }
    }

    /// Adds the next token.
    pub fn add(&mut self, bytes: &[u8]) {
        self.all.push(Outline {
            n_words: bytes.split(|&byte| is_space(byte)).filter(|word| !word.is_empty()).count() as u32,
            begins: Edge::of(bytes.first()),
            ends: Edge::of(bytes.last()),
            has_colon: bytes.windows(2).any(|two| two == b": "),
        });
    }

    /// Whether two tokens may become one.
    #[inline]
    pub fn may_join(&self, left: u32, right: u32) -> bool {
        let (left, right) = (&self.all[left as usize], &self.all[right as usize]);
        let is_colon = left.has_colon || right.has_colon || left.ends == Edge::Colon && right.begins == Edge::Blank;
        let shared = u32::from(left.ends.is_word() && right.begins.is_word());
        !is_colon && (left.n_words + right.n_words - shared) as usize <= self.words_max
    }
}

/// Upper bounds of the counts of neighbouring tokens.
pub struct Neighbours {
    outlines: Outlines,
    n_bytes: Vec<usize>,
    token_bytes_max: usize,
    slots: Vec<u32>,
    shift: u32,
    /// The number of tokens of the texts so far.
    pub n_tokens: u64,
}

impl Neighbours {
    /// No counts yet. `n_bits`: the base-2 logarithm of the number of slots. `token_bytes_max`: see `Goal`.
    pub fn new(tokens: &[Vec<u8>], words_max: usize, token_bytes_max: usize, n_bits: u32) -> Self {
        let mut outlines = Outlines::new(words_max);
        tokens.iter().for_each(|token| outlines.add(token));
        let n_bits = n_bits.clamp(1, 32);
        Self {
            outlines,
            n_bytes: tokens.iter().map(Vec::len).collect(),
            token_bytes_max,
            slots: vec![0; 1 << n_bits],
            shift: u64::BITS - n_bits,
            n_tokens: 0,
        }
    }

    /// Adds the neighbours in texts: the ids of the tokens of each text, and its count.
    pub fn note<'t>(&mut self, texts: impl Iterator<Item = (&'t [u32], u64)>, stop: &Stop) -> Result<()> {
        for (i, (ids, count)) in texts.enumerate() {
            if i % N_UNCHECKED == 0 {
                stop.check()?;
            }
            self.n_tokens = self.n_tokens.saturating_add(count.saturating_mul(ids.len() as u64));
            let capped = u32::try_from(count).unwrap_or(u32::MAX);
            for two in ids.windows(2) {
                let slot = self.slot(two[0], two[1]);
                self.slots[slot] = self.slots[slot].saturating_add(capped);
            }
        }
        Ok(())
    }

    /// A power of two that at least `n` slots reach; 1 if fewer are in use.
    pub fn count_of_nth(&self, n: u64) -> u64 {
        let mut n_by_bits = [0_u64; 33];
        self.slots.iter().for_each(|&slot| n_by_bits[(u32::BITS - slot.leading_zeros()) as usize] += 1);
        let mut n_more = 0;
        let found = (1..33).rev().find(|&bits| {
            n_more += n_by_bits[bits];
            n_more >= n
        });
        found.map_or(1, |bits| 1 << (bits - 1))
    }

    /// Calls `each` with the phrases of two tokens or more of a text.
    pub fn phrases(&self, ids: &[u32], floor: u64, mut each: impl FnMut(&[u32])) {
        let mut start = 0;
        for end in 1..=ids.len() {
            if end == ids.len() || !self.may_meet(ids[end - 1], ids[end], floor) {
                if end - start > 1 {
                    each(&ids[start..end]);
                }
                start = end;
            }
        }
    }

    fn may_meet(&self, left: u32, right: u32, floor: u64) -> bool {
        u64::from(self.slots[self.slot(left, right)]) >= floor.min(u32::MAX.into())
            && self.outlines.may_join(left, right)
            && self.n_bytes[left as usize] + self.n_bytes[right as usize] < self.token_bytes_max
    }

    #[inline]
    fn slot(&self, left: u32, right: u32) -> usize {
        (mixed(left, right) >> self.shift) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_join(words_max: usize, left: &str, right: &str) -> bool {
        let mut outlines = Outlines::new(words_max);
        [left, right].iter().for_each(|token| outlines.add(token.as_bytes()));
        outlines.may_join(0, 1)
    }

    #[test]
    fn words_are_counted_across_the_border_and_colons_with_a_blank_do_not_join() {
        assert!(may_join(1, "ab", "cd") && may_join(1, " ab", "cd ") && may_join(1, " ", " ab\n"));
        assert!(!may_join(1, "ab", " cd") && may_join(2, "ab", " cd") && !may_join(2, "ab c", "d ef"));
        assert!(
            !may_join(9, "a:", " b") && !may_join(9, "a: ", "b") && may_join(9, "a:", "b") && may_join(9, "a:", "\nb")
        );
    }

    #[test]
    fn a_text_is_cut_where_neighbours_are_rare_or_may_not_join() {
        let tokens = ["a", " b", " c", "d"].map(|token| token.as_bytes().to_vec());
        let mut neighbours = Neighbours::new(&tokens, 2, usize::MAX, 20);
        let texts: [(&[u32], u64); 2] = [(&[0, 1, 2, 3], 5), (&[0, 1], 3)];
        neighbours.note(texts.into_iter(), &Stop::default()).unwrap();
        assert_eq!((neighbours.n_tokens, neighbours.count_of_nth(1), neighbours.count_of_nth(4)), (26, 8, 1));
        let phrases = |floor| {
            let mut found = Vec::new();
            neighbours.phrases(&[0, 1, 2, 3, 0, 1], floor, |phrase| found.push(phrase.to_vec()));
            found
        };
        assert_eq!(phrases(5), [vec![0, 1, 2, 3], vec![0, 1]]);
        assert_eq!(phrases(6), [vec![0, 1], vec![0, 1]]);
        assert!(phrases(9).is_empty());
        let narrow = Neighbours { outlines: Outlines { words_max: 1, ..neighbours.outlines }, ..neighbours };
        let mut found = Vec::new();
        narrow.phrases(&[0, 1, 2, 3], 1, |phrase| found.push(phrase.to_vec()));
        assert_eq!(found, [vec![2, 3]]);
    }
}
