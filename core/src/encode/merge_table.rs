//! The table of merges: which pairs of ids merge, at what rank, and into which token.
//!
//! Cost: one look-up. For a pair that does not merge, the filter alone nearly always suffices.

use crate::encode::characters::Characters;
use crate::encode::premerged::Certain;
use crate::memory::pages::Pages;
use crate::pair::{NO_PAIR, NONE, Pair, key_of};
use bytemuck::{Pod, Zeroable};
use rustc_hash::FxHashMap;

/// The number of slots that share a word of the filter, which for gpt2 means six pairs.
const FILTERED: usize = 16;

/// A merge of the vocabulary. The lowest rank is merged first.
#[derive(Clone, Copy)]
pub struct Rule {
    /// The id of the left side.
    pub left: u32,
    /// The id of the right side.
    pub right: u32,
    /// The place of the merge in their order. The lowest goes first.
    pub rank: u32,
    /// The id of the token that the two become.
    pub token: u32,
}

/// The key of a pair (FREE in an empty slot) and its merge.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Slot {
    key: u64,
    pair: Pair,
}

const FREE: u64 = u64::MAX;

/// The merges of all pairs of ids, and what follows from them for bytes.
pub struct MergeTable {
    /// The bytes whose first merges are certain, whatever surrounds them.
    certain: Certain,
    /// The first symbols of a character-level vocabulary, which has nothing certain.
    characters: Option<Characters>,
    /// All pairs, each at the index of its hash or after it. At most half of the slots are in use.
    slots: Pages<Slot>,
    /// Two bits for each pair, in the word of its hash (a Bloom filter). It fits a core's own cache, and answers for nearly all
    /// pairs that do not merge.
    filter: Vec<u64>,
    /// For a token and a byte: the lowest rank at which the token merges with a token that begins with the byte.
    lowest_with: FxHashMap<(u32, u8), u32>,
    n_ranks: usize,
}

impl MergeTable {
    /// The table for the ids of single bytes, the bytes of each token, and merges as (left, right, rank, token). The error is the
    /// index of the first merge whose pair occurs twice.
    pub fn new<'b>(
        byte_ids: &[Option<u32>; 256],
        bytes_of: impl Fn(u32) -> &'b [u8],
        merges: impl ExactSizeIterator<Item = (u32, u32, u32, u32)> + Clone,
    ) -> std::result::Result<Self, usize> {
        let mut ranks: Vec<u32> = merges.clone().map(|(_, _, rank, _)| rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let n_slots = (2 * merges.len() + 2).next_power_of_two();
        let mut table = Self {
            certain: Certain::default(),
            characters: None,
            slots: Pages::new(n_slots),
            filter: vec![0; n_slots.div_ceil(FILTERED)],
            lowest_with: FxHashMap::default(),
            n_ranks: ranks.len(),
        };
        table.slots.fill(Slot { key: FREE, pair: NO_PAIR });
        for (i, (left, right, rank, token)) in merges.clone().enumerate() {
            if table.get(left, right) != NO_PAIR {
                return Err(i);
            }
            let order = ranks.partition_point(|&lower| lower < rank) as u32;
            table.place(key_of(left, right), Pair { rank: order, token });
            if let Some(&first) = bytes_of(right).first() {
                table
                    .lowest_with
                    .entry((left, first))
                    .and_modify(|lowest| *lowest = order.min(*lowest))
                    .or_insert(order);
            }
        }
        let pairs = merges.map(|(left, right, ..)| (left, right));
        table.certain = Certain::new(byte_ids, bytes_of, pairs, |left, right| table.get(left, right));
        Ok(table)
    }

    /// The same merges, of symbols that are characters.
    pub fn of_characters(self, characters: Characters) -> Self {
        Self { characters: Some(characters), ..self }
    }

    fn place(&mut self, key: u64, pair: Pair) {
        let hash = hash_of(key);
        let mut at = self.home(hash);
        while self.slots[at].key != FREE {
            at = self.home(at + 1);
        }
        self.slots[at] = Slot { key, pair };
        let (word, bits) = self.filtered(hash);
        self.filter[word] |= bits;
    }

    #[inline(always)]
    fn home(&self, hash: usize) -> usize {
        hash & (self.slots.len() - 1)
    }

    /// The index of a pair's word in the filter, and its bits.
    #[inline(always)]
    fn filtered(&self, hash: usize) -> (usize, u64) {
        ((hash / FILTERED) & (self.filter.len() - 1), 1 << (hash >> 26 & 63) | 1 << (hash >> 20 & 63))
    }

    #[inline(always)]
    pub(crate) fn get(&self, left: u32, right: u32) -> Pair {
        let key = key_of(left, right);
        let hash = hash_of(key);
        let (word, bits) = self.filtered(hash);
        if self.filter[word] & bits != bits {
            return NO_PAIR;
        }
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot.key == key || slot.key == FREE {
                return slot.pair;
            }
            at = self.home(at + 1);
        }
    }

    /// The lowest rank at which a token merges with one that begins with `next`.
    pub(crate) fn lowest_with(&self, id: u32, next: u8) -> u32 {
        self.lowest_with.get(&(id, next)).copied().unwrap_or(NONE)
    }

    /// The number of ranks. All ranks are lower than this.
    pub(crate) fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// The symbol that begins at `at`, and its number of bytes: as many as certainly merge first.
    #[inline(always)]
    pub(crate) fn symbol(&self, piece: &[u8], at: usize) -> (u32, usize) {
        match &self.characters {
            None => self.certain.symbol(piece, at),
            Some(characters) => characters.symbol(piece, at),
        }
    }
}

#[inline(always)]
fn hash_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}
