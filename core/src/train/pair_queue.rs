//! The queue of pairs: the highest score first, then the smallest key.
//!
//! Most pairs have low scores. Such a pair waits in a list for its score (its level), which is sorted when the level's turn
//! comes. A heap holds pairs with high scores, and another one those that are added to the current level. Invariant: no list
//! above `level` has entries. Cost: O(1) to add to a waiting level; O(log n) to take from one, mostly in a single sort, which has
//! fewer cache misses than a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Scores below this number have a level each.
const N_LEVELS: usize = 1 << 12;

/// A queue of keys by score: the highest score first; of equal scores, the smallest key.
pub struct PairQueue<V> {
    high: BinaryHeap<(V, Reverse<u64>)>,
    /// For each level: its score, once known, and the waiting keys.
    levels: Vec<(Option<V>, Vec<u64>)>,
    level: usize,
    /// The keys that waited at the current level, the smallest last. `later`: keys added to the level since.
    sorted: Vec<u64>,
    later: BinaryHeap<Reverse<u64>>,
    n: usize,
}

impl<V: Ord + Copy> PairQueue<V> {
    /// `level_of`: the score as a small integer, if it is one.
    pub fn new(entries: impl Iterator<Item = (V, u64)>, level_of: impl Fn(V) -> Option<usize>) -> Self {
        let mut levels = Vec::new();
        levels.resize_with(N_LEVELS, || (None, Vec::new()));
        let (high, sorted, later) = (BinaryHeap::new(), Vec::new(), BinaryHeap::new());
        let mut queue = Self { high, levels, level: N_LEVELS, sorted, later, n: 0 };
        entries.for_each(|(value, key)| queue.push(value, key, &level_of));
        queue
    }

    /// The number of entries.
    pub fn n_entries(&self) -> usize {
        self.n
    }

    /// Adds an entry; `level_of` as in `new`.
    pub fn push(&mut self, value: V, key: u64, level_of: impl Fn(V) -> Option<usize>) {
        self.n += 1;
        match level_of(value) {
            Some(level) if level < self.level.min(N_LEVELS) => {
                let (score, waiting) = &mut self.levels[level];
                *score = Some(value);
                waiting.push(key);
            }
            Some(level) if level == self.level && level < N_LEVELS => {
                self.levels[level].0 = Some(value);
                self.later.push(Reverse(key));
            }
            _ => self.high.push((value, Reverse(key))),
        }
    }

    /// Takes out the entry with the highest score.
    pub fn pop(&mut self) -> Option<(V, u64)> {
        while self.high.is_empty() && self.sorted.is_empty() && self.later.is_empty() && self.level > 0 {
            self.level -= 1;
            self.sorted = std::mem::take(&mut self.levels[self.level].1);
            self.sorted.sort_unstable_by_key(|&key| Reverse(key));
        }
        let popped = self.high.pop().map(|(value, Reverse(key))| (value, key));
        let popped = popped.or_else(|| Some((self.levels[self.level].0?, self.pop_of_level()?)))?;
        self.n -= 1;
        Some(popped)
    }

    /// The key that is `ahead` entries away, if it is known.
    pub fn coming(&self, ahead: usize) -> Option<u64> {
        self.sorted.len().checked_sub(ahead).map(|at| self.sorted[at])
    }

    fn pop_of_level(&mut self) -> Option<u64> {
        match (self.sorted.last(), self.later.peek()) {
            (Some(&waited), Some(&Reverse(late))) if late < waited => self.later.pop().map(|Reverse(key)| key),
            (Some(_), _) => self.sorted.pop(),
            (None, _) => self.later.pop().map(|Reverse(key)| key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level_of(value: u64) -> Option<usize> {
        (value < N_LEVELS as u64).then_some(value as usize)
    }

    #[test]
    fn the_highest_score_comes_first_and_of_equal_ones_the_smallest_key() {
        let mut queue = PairQueue::new([(5, 1), (9000, 2), (5, 0), (7000, 9)].into_iter(), level_of);
        queue.push(6, 3, level_of);
        let order = [(9000, 2), (7000, 9), (6, 3)];
        assert_eq!(order.map(|_| queue.pop()), order.map(Some));
        // Level 5 has not begun, level 6 is current, and anything above goes to the heap.
        for (value, key) in [(5, 7), (6, 8), (6, 4), (20, 6), (8000, 5)] {
            queue.push(value, key, level_of);
        }
        let order = [(8000, 5), (20, 6), (6, 4), (6, 8), (5, 0), (5, 1), (5, 7)];
        assert_eq!(order.map(|_| queue.pop()), order.map(Some));
        assert_eq!((queue.pop(), queue.n_entries()), (None, 0));
    }
}
