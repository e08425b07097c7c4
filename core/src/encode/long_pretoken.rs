//! Merges one long pre-token part by part, with a queue and a linked list.
//!
//! If a border between two symbols is left after all merges of a text, no merge ever crossed it, so each side can be merged
//! alone. A part begins at such a border. Its last symbols are given up as soon as a merge with the bytes after the part could
//! come before the next merge here; the next part begins after the remaining symbols. So a part and its queue fit a core's own
//! cache: per byte, 2 MB of DNA at once took 3 times as long as 20 kB, but in parts as long. In random text, a part gave up 4
//! bytes on average and 64 at most. Repetitive text may give up all of them, and is then merged in larger parts.
//! Invariant: the result is that of always merging the pair with the lowest rank, and of equal ranks the leftmost. Cost: O(n log
//! n), and O(ranks) per part, which with the 446,000 ranks of o200k is about a sixth of the time (found by comparing parts of 16
//! and 32 kB).

use crate::encode::merge_table::MergeTable;
use crate::encode::rank_queue::RankQueue;
use crate::memory::out_buffer::Tail;
use crate::pair::{NO_PAIR, NONE, Pair};
use crate::parallel::interrupt::{Result, Stop};

/// The bytes of a part; its symbols take 0.4 MB. 4 and 8 kB were slower for most shapes of `make bench-hard`. 32 kB was up to an
/// eighth faster with the tables of three published tokenizers, but a third slower for digits.
const PART_BYTES: usize = 1 << 14;
/// The growth of parts when less than half of a part is settled: to 1 MB, which some repetitive text needs anyway, then to 64 MB.
const GROWTH: usize = 64;
/// Scratch space for a part of more bytes than this is freed.
const KEPT_BYTES_MAX: usize = 1 << 19;

/// A symbol of the linked list, and the pair that it begins.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    previous: u32,
    next: u32,
    pair: Pair,
}

/// The end of the settled symbols of a part, which the bytes after the part cannot change.
#[derive(Clone, Copy, Default)]
struct Edge {
    /// The position of the last settled symbol.
    last: u32,
    /// The number of settled bytes.
    n_bytes: usize,
    /// No merge with a lower rank joins the last settled symbol with bytes after it.
    rank: u32,
}

/// Scratch space, reused for every pre-token.
#[derive(Default)]
pub struct Long {
    /// Symbols, by the position of their first byte.
    symbols: Vec<Symbol>,
    /// The pairs to merge. It has every present pair, and maybe pairs that no longer exist.
    queue: RankQueue,
    edge: Edge,
}

impl Long {
    /// Merges the bytes of a pre-token as far as the merge table allows, and appends the remaining symbols to `out`.
    ///
    /// Every byte must have an id, and there must be fewer than 2^32 - 1 bytes. Returns Interrupted when `stop` says so.
    pub fn merge(&mut self, table: &MergeTable, piece: &[u8], stop: &Stop, out: &mut Tail<u32>) -> Result<()> {
        self.merge_parts(table, piece, PART_BYTES, stop, out)
    }

    pub(crate) fn merge_parts(
        &mut self,
        table: &MergeTable,
        mut piece: &[u8],
        mut part_bytes: usize,
        stop: &Stop,
        out: &mut Tail<u32>,
    ) -> Result<()> {
        while !piece.is_empty() {
            let n = if piece.len() / 2 < part_bytes { piece.len() } else { part_bytes };
            if !self.merge_part(table, piece, n, stop)? {
                part_bytes = part_bytes.saturating_mul(GROWTH);
                continue;
            }
            let n_settled = self.edge.n_bytes;
            let mut at = 0;
            while let Some(symbol) = self.symbols[..n_settled].get(at as usize) {
                out.put([symbol.id], 1);
                at = symbol.next;
            }
            piece = &piece[n_settled..];
        }
        if self.symbols.len() > KEPT_BYTES_MAX {
            *self = Self::default();
        }
        Ok(())
    }

    /// Merges the first `n` bytes of `piece`, or up to three more if a symbol ends after them. `edge` then says how many of them are
    /// settled. Returns false if that is less than half.
    fn merge_part(&mut self, table: &MergeTable, piece: &[u8], n: usize, stop: &Stop) -> Result<bool> {
        self.symbols.clear();
        self.symbols.reserve_exact(n + 3);
        self.queue.start(n, table.n_ranks());
        let (mut end, mut last) = (0, NONE);
        let mut n_done = 0_u32;
        while end < n {
            check_often(stop, &mut n_done)?;
            let (id, n_bytes) = table.symbol(piece, end);
            if let Some(symbol) = self.symbols.get_mut(last as usize) {
                symbol.next = end as u32;
                symbol.pair = table.get(symbol.id, id);
                if symbol.pair != NO_PAIR {
                    self.queue.push(symbol.pair.rank, last);
                }
            }
            self.symbols.resize(end + n_bytes, Symbol { id, previous: last, next: NONE, pair: NO_PAIR });
            (end, last) = (end + n_bytes, end as u32);
        }
        self.end_at(table, piece, last, end);
        loop {
            check_often(stop, &mut n_done)?;
            let next = self.queue.pop();
            while self.edge.rank < next.map_or(NONE, |(rank, _)| rank) {
                let n_bytes = self.edge.last as usize;
                if 2 * n_bytes < n {
                    return Ok(false);
                }
                let last = self.symbols[n_bytes].previous;
                let symbol = &mut self.symbols[last as usize];
                (symbol.next, symbol.pair) = (NONE, NO_PAIR);
                self.end_at(table, piece, last, n_bytes);
            }
            let Some((rank, position)) = next else { return Ok(true) };
            if position < self.edge.last {
                self.apply(table, piece, rank, position);
            }
        }
    }

    /// Sets the edge: the symbols up to the one at `last` are settled, with `n_bytes` in all.
    fn end_at(&mut self, table: &MergeTable, piece: &[u8], last: u32, n_bytes: usize) {
        let id = self.symbols[last as usize].id;
        let rank = piece.get(n_bytes).map_or(NONE, |&next| table.lowest_with(id, next));
        self.edge = Edge { last, n_bytes, rank };
    }

    #[inline(always)]
    fn apply(&mut self, table: &MergeTable, piece: &[u8], rank: u32, position: u32) {
        let here = self.symbols[position as usize];
        if here.pair.rank != rank {
            return;
        }
        let gone = &mut self.symbols[here.next as usize];
        gone.pair = NO_PAIR;
        let next = gone.next;
        let mut pair = NO_PAIR;
        if let Some(after) = self.symbols.get_mut(next as usize) {
            after.previous = position;
            pair = table.get(here.pair.token, after.id);
        }
        self.symbols[position as usize] = Symbol { id: here.pair.token, next, pair, ..here };
        self.offer(position, pair);
        if let Some(before) = self.symbols.get_mut(here.previous as usize) {
            before.pair = table.get(before.id, here.pair.token);
            let pair = before.pair;
            self.offer(here.previous, pair);
        }
        if here.next == self.edge.last {
            self.end_at(table, piece, position, self.edge.n_bytes);
        }
    }

    #[inline(always)]
    fn offer(&mut self, position: u32, pair: Pair) {
        if pair != NO_PAIR {
            self.queue.push(pair.rank, position);
        }
    }
}

/// Checks `stop` at the first step and then every 2^14 steps.
#[inline(always)]
fn check_often(stop: &Stop, n_done: &mut u32) -> Result<()> {
    if n_done.is_multiple_of(1 << 14) {
        stop.check()?;
    }
    *n_done = n_done.wrapping_add(1);
    Ok(())
}
