//! The merges of one pre-token: a linked list over flat arrays, and a heap of the pairs that can be merged.
//!
//! Invariant: the pair with the lowest rank is merged first, of equal ones the leftmost; a heap entry whose pair is no
//! longer there is skipped. Cost: O(n log n) for n bytes; nothing is allocated once the scratch space has grown.

use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;

/// Which pairs of ids merge, how early, and into what.
#[derive(Default)]
pub struct MergeTable(FxHashMap<u64, (u32, u32)>);

impl MergeTable {
    /// Adds a merge; whether the pair is new.
    pub fn insert(&mut self, left: u32, right: u32, rank: u32, token: u32) -> bool {
        self.0.insert(key_of(left, right), (rank, token)).is_none()
    }

    fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        self.0.get(&key_of(left, right)).copied()
    }
}

/// A symbol of the list; one that was merged into its left neighbour has no id.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    position: u32,
    left: u32,
    right: u32,
    token: u32,
}

/// Scratch space, used again for every pre-token.
#[derive(Default)]
pub struct Scratch {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Candidate>>,
}

impl Scratch {
    /// Merges `ids` as far as the table says and appends what is left to `out`.
    pub fn merge(&mut self, table: &MergeTable, ids: impl ExactSizeIterator<Item = u32>, out: &mut Vec<u32>) {
        let n = ids.len() as u32;
        self.symbols.clear();
        self.symbols.extend(ids.zip(0..).map(|(id, i): (u32, u32)| Symbol {
            id,
            previous: i.wrapping_sub(1),
            next: if i + 1 < n { i + 1 } else { NONE },
        }));
        self.heap.clear();
        for position in 0..n.saturating_sub(1) {
            self.offer(table, position);
        }
        while let Some(Reverse(candidate)) = self.heap.pop() {
            self.apply(table, candidate);
        }
        let mut at = if n == 0 { NONE } else { 0 };
        while at != NONE {
            let symbol = self.symbols[at as usize];
            out.push(symbol.id);
            at = symbol.next;
        }
    }

    /// Puts the pair that begins at `position` on the heap, if it can be merged.
    fn offer(&mut self, table: &MergeTable, position: u32) {
        let here = self.symbols[position as usize];
        if here.next == NONE {
            return;
        }
        let (left, right) = (here.id, self.symbols[here.next as usize].id);
        if let Some((rank, token)) = table.get(left, right) {
            self.heap.push(Reverse(Candidate { rank, position, left, right, token }));
        }
    }

    fn apply(&mut self, table: &MergeTable, candidate: Candidate) {
        let here = self.symbols[candidate.position as usize];
        if here.id != candidate.left || here.next == NONE {
            return;
        }
        let next = self.symbols[here.next as usize];
        if next.id != candidate.right {
            return;
        }
        self.symbols[here.next as usize].id = NONE;
        self.symbols[candidate.position as usize].id = candidate.token;
        self.symbols[candidate.position as usize].next = next.next;
        if next.next != NONE {
            self.symbols[next.next as usize].previous = candidate.position;
        }
        self.offer(table, candidate.position);
        if here.previous != NONE {
            self.offer(table, here.previous);
        }
    }
}

fn key_of(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(merges: &[(u32, u32, u32, u32)], ids: &[u32]) -> Vec<u32> {
        let mut table = MergeTable::default();
        for &(left, right, rank, token) in merges {
            assert!(table.insert(left, right, rank, token));
        }
        let mut out = Vec::new();
        Scratch::default().merge(&table, ids.iter().copied(), &mut out);
        out
    }

    #[test]
    fn the_lowest_rank_is_merged_first() {
        assert_eq!(merged(&[(1, 2, 1, 10), (2, 3, 0, 11)], &[1, 2, 3]), [1, 11]);
    }

    #[test]
    fn of_equal_ranks_the_leftmost_is_merged() {
        assert_eq!(merged(&[(1, 1, 0, 10)], &[1, 1, 1]), [10, 1]);
        assert_eq!(merged(&[(1, 1, 0, 10), (10, 10, 1, 11)], &[1; 5]), [11, 1]);
    }

    #[test]
    fn a_pair_that_is_gone_is_skipped() {
        assert_eq!(merged(&[(1, 2, 0, 10), (2, 1, 1, 11), (10, 10, 2, 12)], &[1, 2, 1, 2]), [12]);
    }

    #[test]
    fn nothing_and_one_symbol_stay_as_they_are() {
        assert!(merged(&[(1, 1, 0, 10)], &[]).is_empty());
        assert_eq!(merged(&[(1, 1, 0, 10)], &[1]), [1]);
    }
}
