//! The queue of pairs that can be merged: the lowest rank first, and of equal ranks the leftmost.
//!
//! The pairs of a long pre-token are in one bucket per rank, and a bucket is swept from left to right. That reads memory in
//! order, whereas a heap jumps through it and has mispredicted branches (2.3 times as slow for DNA, 5 times for one letter in
//! parts of 1 MB). A heap holds pairs that arise with a rank whose turn is over, which happens with few tokenizers, and all pairs
//! of a shorter pre-token.
//! Invariant: `pop` gives the least of the pushed pairs. Cost: O(log n) per pair.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// From this many symbols on, buckets are faster than the heap.
const SWEPT_MIN: usize = 1 << 12;
const PER_BLOCK: usize = 14;
/// No block, which is the end of a bucket.
const END: u32 = u32::MAX;

/// A cache line of a bucket. `next`: the block that was filled before it.
#[derive(Clone, Copy)]
struct PositionsLine {
    next: u32,
    n: u32,
    positions: [u32; PER_BLOCK],
}

/// Positions by rank.
#[derive(Default)]
pub struct RankQueue {
    /// The newest block of each rank.
    buckets: Vec<u32>,
    blocks: Vec<PositionsLine>,
    free: Vec<u32>,
    /// The rank being swept. Pairs pushed with it, or with a lower rank, go to the heap.
    rank: u32,
    sweep: Vec<u32>,
    n_swept: usize,
    heap: BinaryHeap<Reverse<u64>>,
}

impl RankQueue {
    /// Empties the queue, for the pairs of `n` symbols with ranks below `n_ranks`.
    pub fn start(&mut self, n: usize, n_ranks: usize) {
        self.heap.clear();
        self.sweep.clear();
        self.n_swept = 0;
        self.rank = u32::MAX;
        if n >= SWEPT_MIN {
            // Rank 0 of the buckets stays unused, so that every rank is above that of the sweep at the start.
            self.rank = 0;
            self.buckets.clear();
            self.buckets.resize(n_ranks + 1, END);
            self.blocks.clear();
            self.free.clear();
        }
    }

    /// Adds the pair that begins at `position`.
    #[inline(always)]
    pub fn push(&mut self, rank: u32, position: u32) {
        if rank < self.rank {
            self.heap.push(Reverse(u64::from(rank) << 32 | u64::from(position)));
        } else {
            self.push_later(rank, position);
        }
    }

    fn push_later(&mut self, rank: u32, position: u32) {
        let newest = &mut self.buckets[rank as usize + 1];
        if let Some(block) = self.blocks.get_mut(*newest as usize)
            && let Some(place) = block.positions.get_mut(block.n as usize)
        {
            *place = position;
            block.n += 1;
            return;
        }
        let mut block = PositionsLine { next: *newest, n: 1, positions: [0; PER_BLOCK] };
        block.positions[0] = position;
        match self.free.pop() {
            Some(at) => {
                self.blocks[at as usize] = block;
                *newest = at;
            }
            None => {
                *newest = self.blocks.len() as u32;
                self.blocks.push(block);
            }
        }
    }

    /// Takes out the next pair to merge, as rank and position.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(u32, u32)> {
        loop {
            let next = self.sweep.get(self.n_swept).map(|&at| u64::from(self.rank - 1) << 32 | u64::from(at));
            if let Some(Reverse(early)) = self.heap.peek()
                && next.is_none_or(|next| *early < next)
            {
                let Reverse(early) = self.heap.pop()?;
                return Some(((early >> 32) as u32, early as u32));
            }
            if let Some(next) = next {
                self.n_swept += 1;
                return Some(((next >> 32) as u32, next as u32));
            }
            if !self.next_sweep() {
                return None;
            }
        }
    }

    /// Sorts the next non-empty bucket for the sweep. Its blocks are runs that are sorted already.
    fn next_sweep(&mut self) -> bool {
        let from = self.rank as usize;
        let Some(more) = self.buckets.get(from..).and_then(|later| later.iter().position(|&block| block != END)) else {
            return false;
        };
        self.rank = (from + more) as u32;
        self.sweep.clear();
        self.n_swept = 0;
        let mut at = std::mem::replace(&mut self.buckets[from + more], END);
        while let Some(block) = self.blocks.get(at as usize) {
            self.sweep.extend(block.positions[..block.n as usize].iter().rev());
            self.free.push(at);
            at = block.next;
        }
        self.sweep.reverse();
        self.sweep.sort();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes pseudo-random pairs, some of them between pops, and compares with a heap.
    #[test]
    fn the_least_comes_first_whatever_is_pushed_in_between() {
        for n in [10, SWEPT_MIN] {
            let (mut queue, mut heap) = (RankQueue::default(), BinaryHeap::new());
            for _ in 0..2 {
                let mut state = 7_u64;
                let mut random = |below: u64| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    (state >> 33) % below
                };
                queue.start(n, 50);
                for step in 0..20_000 {
                    if step < 5000 || random(3) == 0 {
                        let (rank, position) = (random(50) as u32, random(10_000) as u32);
                        queue.push(rank, position);
                        heap.push(Reverse((rank, position)));
                    } else {
                        assert_eq!(queue.pop(), heap.pop().map(|Reverse(least)| least));
                    }
                }
                while let Some(Reverse(least)) = heap.pop() {
                    assert_eq!(queue.pop(), Some(least));
                }
                assert_eq!(queue.pop(), None);
            }
        }
    }
}
