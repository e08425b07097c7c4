//! The pre-tokens during training: one flat array of cells, in which pairs are merged in place without moving anything.
//!
//! A token takes as many cells as it has bytes, so the next token begins `length` cells later. Its first cell holds its id. If it
//! has two cells or more, its last cell holds the id marked as an end, so that the token before a position can be found too.
//! Invariant: a cell without a mark is the first cell of a present token. Every pre-token is between two boundary cells, and the
//! one before it holds its count. Cost: O(1) per neighbour; a merge moves no other token.

use crate::memory::pages::Pages;
use crate::memory::prefetch::prefetch;
use crate::parallel::interrupt::{CoreError, Result};

const MARK: u32 = 3 << 30;
const START: u32 = 0;
const BOUNDARY: u32 = 1 << 30;
const END: u32 = 2 << 30;
/// A boundary whose count is in `large_counts`.
const LARGE: u32 = 3 << 30;
const VALUE: u32 = (1 << 30) - 1;
/// A cell inside a token. No id is that large.
const INSIDE: u32 = END | VALUE;
/// Ids must be below this.
pub const ID_MAX: u32 = VALUE - 1;
/// How many positions ahead cells are prefetched.
const AHEAD: usize = 8;
/// From this many cells on, a pre-token's boundary is found by a search instead of walking to it.
const LONG_CELLS: usize = 32;

/// A merge in progress: its two sides, its token, and the lengths of the sides.
#[derive(Clone, Copy)]
pub struct Joint {
    /// The id of the left side.
    pub left: u32,
    /// The id of the right side.
    pub right: u32,
    /// The id of the token that both sides become.
    pub token: u32,
    /// The length of the left side in cells.
    pub left_cells: usize,
    /// The length of the right side in cells.
    pub right_cells: usize,
}

/// A neighbour of a merged pair: its token, and the position and count of the new pair that it belongs to.
pub struct Neighbour {
    /// The id of the neighbouring token.
    pub id: u32,
    /// The position at which the new pair begins.
    pub position: u32,
    /// The count of the pre-token there.
    pub count: u64,
}

/// The result of one merge.
#[derive(Default)]
pub struct Found {
    /// The tokens before the merged pairs.
    pub before: Vec<Neighbour>,
    /// The tokens after the merged pairs.
    pub after: Vec<Neighbour>,
    /// The number of merged places.
    pub n_places: usize,
    /// The sum of the counts of the places merged.
    pub count: u64,
}

impl Found {
    /// Empties the result, but keeps its memory.
    fn clear(&mut self) {
        self.before.clear();
        self.after.clear();
        (self.n_places, self.count) = (0, 0);
    }
}

/// The text as cells of ids, in which pairs are merged in place.
pub struct Words {
    /// In large pages: merges and compactions visit them in random order.
    cells: Pages<u32>,
    large_counts: Vec<u64>,
    /// The boundaries before the long pre-tokens. Long pre-tokens come last.
    long: Vec<u32>,
    /// The number of pre-tokens whose count has 1 bit, 2 bits, and so on.
    n_by_bits: Vec<u64>,
}

/// Collects pre-tokens.
#[derive(Default)]
pub struct WordsBuilder {
    short: Vec<u32>,
    long: Vec<u32>,
    long_starts: Vec<usize>,
    large_counts: Vec<u64>,
    total: u128,
    n_by_bits: Vec<u64>,
}

impl WordsBuilder {
    /// Reserves room for `n_cells`, and for the final boundary.
    pub fn reserve(&mut self, n_cells: usize) {
        self.short.reserve_exact(n_cells + 1);
    }

    /// Adds a pre-token as the ids of its tokens. `cells_of`: the number of bytes of a token.
    pub fn add(
        &mut self,
        ids: impl ExactSizeIterator<Item = u32>,
        count: u64,
        cells_of: impl Fn(u32) -> usize,
    ) -> Result<()> {
        if ids.len() == 0 || count == 0 {
            return Ok(());
        }
        let boundary = self.boundary(count)?;
        // There are at most as many tokens as cells. A pre-token that is long after all is only walked a little further.
        let cells = if ids.len() < LONG_CELLS {
            &mut self.short
        } else {
            self.long_starts.push(self.long.len());
            &mut self.long
        };
        let start = cells.len();
        cells.push(boundary);
        for id in ids {
            cells.push(id);
            if let more @ 1.. = cells_of(id) - 1 {
                cells.extend(std::iter::repeat_n(INSIDE, more - 1));
                cells.push(END | id);
            }
        }
        self.total += u128::from(count) * (cells.len() - start) as u128;
        let bits = count.ilog2() as usize;
        self.n_by_bits.resize(self.n_by_bits.len().max(bits + 1), 0);
        self.n_by_bits[bits] += 1;
        Ok(())
    }

    fn boundary(&mut self, count: u64) -> Result<u32> {
        if count < u64::from(VALUE) {
            return Ok(BOUNDARY | count as u32);
        }
        let place = u32::try_from(self.large_counts.len()).ok().filter(|&place| place < VALUE);
        let place = place.ok_or_else(|| too_large("more than 2^30 pre-tokens that count more than 2^30 each"))?;
        self.large_counts.push(count);
        Ok(LARGE | place)
    }

    /// All pre-tokens as words. Then the count of any pair fits in 64 bits.
    pub fn build(self) -> Result<Words> {
        if u64::try_from(self.total).is_err() {
            return Err(too_large("more than 2^64 bytes of text in all"));
        }
        let Self { short, long, long_starts, large_counts, n_by_bits, .. } = self;
        let (n_short, n_filled) = (short.len(), short.len() + long.len());
        if u32::try_from(n_filled + 1).is_err() {
            return Err(too_large("more than 2^32 bytes of distinct pre-tokens"));
        }
        let mut cells = Pages::new(n_filled + 1);
        cells[..n_short].copy_from_slice(&short);
        cells[n_short..n_filled].copy_from_slice(&long);
        cells[n_filled] = BOUNDARY;
        let long = long_starts.into_iter().map(|start| (n_short + start) as u32).collect();
        Ok(Words { cells, large_counts, long, n_by_bits })
    }
}

fn too_large(what: &str) -> CoreError {
    CoreError::Counts(format!("the counts hold {what}. Leave out rare pre-tokens (count_min), or train on less."))
}

impl Words {
    /// The count of the n-th most frequent pre-token (n from 1), rounded down to a power of two; 0 if there are fewer.
    pub fn count_of_nth(&self, n: u64) -> u64 {
        let mut n_more = 0;
        let found = self.n_by_bits.iter().enumerate().rev().find(|&(_, n_of_them)| {
            n_more += n_of_them;
            n_more >= n
        });
        found.map_or(0, |(bits, _)| 1 << bits)
    }

    /// Prefetches the cell at a position.
    pub fn prefetch(&self, position: u32) {
        prefetch(&self.cells[position as usize]);
    }

    /// Whether the pair is at a position now.
    #[inline]
    pub fn has(&self, position: u32, left: u32, right: u32, left_cells: usize) -> bool {
        self.cells[position as usize] == left && self.cells[position as usize + left_cells] == right
    }

    /// Calls `each` with the position, the two ids and the count of every pair.
    pub fn pairs(
        &self,
        cells_of: impl Fn(u32) -> usize,
        mut each: impl FnMut(u32, u32, u32, u64) -> Result<()>,
    ) -> Result<()> {
        let (mut at, mut count) = (0, 0);
        while at < self.cells.len() {
            let cell = self.cells[at];
            if is_boundary(cell) {
                count = count_of(cell, &self.large_counts);
                at += 1;
                continue;
            }
            let next = at + cells_of(cell);
            let after = self.cells[next];
            if !is_boundary(after) {
                each(at as u32, cell, after, count)?;
            }
            at = next;
        }
        Ok(())
    }

    /// How often each token occurs in the text now.
    pub fn token_counts(&self, n_tokens: usize, cells_of: impl Fn(u32) -> usize) -> Vec<u64> {
        let mut counts = vec![0; n_tokens];
        let (mut at, mut count) = (0, 0);
        while at < self.cells.len() {
            let cell = self.cells[at];
            if is_boundary(cell) {
                count = count_of(cell, &self.large_counts);
                at += 1;
            } else {
                counts[cell as usize] += count;
                at += cells_of(cell);
            }
        }
        counts
    }

    /// The present pre-tokens: the ids of their tokens, one after another; the end of each pre-token; and its count.
    pub fn lists(&self, cells_of: impl Fn(u32) -> usize) -> (Vec<u32>, Vec<i64>, Vec<u64>) {
        let (mut ids, mut ends, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = 0;
        while at + 1 < self.cells.len() {
            let cell = self.cells[at];
            if is_boundary(cell) {
                if at > 0 {
                    ends.push(ids.len() as i64);
                }
                counts.push(count_of(cell, &self.large_counts));
                at += 1;
            } else {
                ids.push(cell);
                at += cells_of(cell);
            }
        }
        if at > 0 {
            ends.push(ids.len() as i64);
        }
        (ids, ends, counts)
    }

    /// Merges the pair at those of the `positions` (ascending) where it still is, from left to right. `found`: the result, whose
    /// memory from the last merge is reused.
    pub fn merge(
        &mut self,
        positions: &[u32],
        joint: &Joint,
        cells_of: impl Fn(u32) -> usize,
        check: impl Fn() -> Result<()>,
        found: &mut Found,
    ) -> Result<()> {
        found.clear();
        for side in [&mut found.before, &mut found.after] {
            side.reserve_exact(positions.len()); // growing would hold the content twice
        }
        for (i, &position) in positions.iter().enumerate() {
            if i % 4096 == 4095 {
                check()?;
            }
            if let Some(&later) = positions.get(i + AHEAD) {
                self.prefetch(later);
            }
            self.merge_at(position, joint, &cells_of, found);
        }
        Ok(())
    }

    #[inline]
    fn merge_at(&mut self, position: u32, joint: &Joint, cells_of: impl Fn(u32) -> usize, found: &mut Found) {
        let left = position as usize;
        let right = left + joint.left_cells;
        if !self.has(position, joint.left, joint.right, joint.left_cells) {
            return;
        }
        let count = self.count_at(position, &cells_of);
        let after = right + joint.right_cells;
        let before = self.cells[left - 1];
        if !is_boundary(before) {
            let id = before & VALUE;
            found.before.push(Neighbour { id, position: position - cells_of(id) as u32, count });
        }
        let id = self.cells[after];
        if !is_boundary(id) {
            found.after.push(Neighbour { id, position, count });
        }
        self.cells[left] = joint.token;
        self.cells[right] = INSIDE;
        self.cells[after - 1] = END | joint.token;
        found.n_places += 1;
        found.count += count;
    }

    /// The count of the pre-token that contains the token at `position`.
    #[inline]
    fn count_at(&self, position: u32, cells_of: impl Fn(u32) -> usize) -> u64 {
        if self.long.first().is_some_and(|&first| first < position) {
            let nth = self.long.partition_point(|&start| start < position);
            return count_of(self.cells[self.long[nth - 1] as usize], &self.large_counts);
        }
        let mut at = position as usize - 1;
        while !is_boundary(self.cells[at]) {
            at -= cells_of(self.cells[at] & VALUE);
        }
        count_of(self.cells[at], &self.large_counts)
    }
}

#[inline]
fn is_boundary(cell: u32) -> bool {
    cell & BOUNDARY != START
}

#[inline]
fn count_of(boundary: u32, large_counts: &[u64]) -> u64 {
    let value = boundary & VALUE;
    if boundary & MARK == LARGE { large_counts[value as usize] } else { u64::from(value) }
}
