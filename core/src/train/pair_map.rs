//! A hash table from pairs of ids to small plain values. A look-up reads one cache line, which can be prefetched.
//!
//! Open addressing with linear probing. Removing an entry leaves no tombstone; entries after it move up. Invariant: no entry is
//! free between a key's home and the key's entry. Cost: O(1) per look-up, at most 2/3 of the entries in use. It grows by half.

use crate::memory::prefetch::prefetch;

const FREE: u64 = 0;
const ENTRIES_MIN: usize = 64;

#[derive(Clone, Copy)]
struct Entry<V> {
    /// The key + 1, or FREE.
    mark: u64,
    value: V,
}

pub struct Map<V> {
    entries: Vec<Entry<V>>,
    n_used: usize,
}

impl<V: Copy + Default> Default for Map<V> {
    fn default() -> Self {
        Self { entries: free(ENTRIES_MIN), n_used: 0 }
    }
}

fn free<V: Copy + Default>(n: usize) -> Vec<Entry<V>> {
    vec![Entry { mark: FREE, value: V::default() }; n]
}

impl<V: Copy + Default> Map<V> {
    pub fn len(&self) -> usize {
        self.n_used
    }

    /// Prefetches the cache line for a key.
    #[inline]
    pub fn prefetch(&self, key: u64) {
        prefetch(&self.entries[self.home(key)]);
    }

    #[inline]
    pub fn get(&self, key: u64) -> Option<&V> {
        let entry = &self.entries[self.find(key)];
        (entry.mark != FREE).then_some(&entry.value)
    }

    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let at = self.find(key);
        let entry = &mut self.entries[at];
        (entry.mark != FREE).then_some(&mut entry.value)
    }

    /// The value of a key, after setting it to `value` if there was none, and whether there was one.
    #[inline]
    pub fn get_or_insert(&mut self, key: u64, value: V) -> (&mut V, bool) {
        let mut at = self.find(key);
        let was_there = self.entries[at].mark != FREE;
        if !was_there {
            if (self.n_used + 1) * 3 > self.entries.len() * 2 {
                self.grow();
                at = self.find(key);
            }
            self.entries[at] = Entry { mark: key + 1, value };
            self.n_used += 1;
        }
        (&mut self.entries[at].value, was_there)
    }

    pub fn remove(&mut self, key: u64) -> Option<V> {
        let mut hole = self.find(key);
        let Entry { mark, value } = self.entries[hole];
        if mark == FREE {
            return None;
        }
        let mut at = hole;
        loop {
            at = self.next(at);
            let entry = self.entries[at];
            if entry.mark == FREE {
                break;
            }
            // An entry may move up to the hole, unless its home is after the hole.
            if self.steps(self.home(entry.mark - 1), at) >= self.steps(hole, at) {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole].mark = FREE;
        self.n_used -= 1;
        Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.entries.iter().filter(|entry| entry.mark != FREE).map(|entry| (entry.mark - 1, &entry.value))
    }

    /// The index of a key's entry, or of the free entry for it.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while self.entries[at].mark != key + 1 && self.entries[at].mark != FREE {
            at = self.next(at);
        }
        at
    }

    /// The entry at which the search for a key begins. The upper half of a product is in 0..n for any n, without a division.
    #[inline]
    fn home(&self, key: u64) -> usize {
        let product = u128::from(key ^ 0xd1b5_4a32_d192_ed03) * 0x9e37_79b9_7f4a_7c15;
        let hash = product as u64 ^ (product >> 64) as u64;
        ((u128::from(hash) * self.entries.len() as u128) >> 64) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// The number of steps from one entry to another, wrapping around at the end.
    #[inline]
    fn steps(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.entries.len() - from }
    }

    #[cold]
    fn grow(&mut self) {
        let n_new = self.entries.len() + self.entries.len() / 2;
        let old = std::mem::replace(&mut self.entries, free(n_new));
        for entry in old.into_iter().filter(|entry| entry.mark != FREE) {
            let at = self.find(entry.mark - 1);
            self.entries[at] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_holds_what_a_map_of_the_standard_library_holds() {
        let (mut map, mut expected) = (Map::<u32>::default(), HashMap::new());
        let mut state = 1_u64;
        for n in 0..200_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (state >> 33) % 3000 * u64::from(n % 7);
            if state >> 20 & 3 == 0 {
                assert_eq!(map.remove(key), expected.remove(&key));
            } else {
                let (value, was_there) = map.get_or_insert(key, n);
                assert_eq!(was_there.then_some(*value), expected.get(&key).copied());
                expected.entry(key).or_insert(n);
            }
            assert_eq!((map.get(key), map.len()), (expected.get(&key), expected.len()));
        }
        let mut found: Vec<_> = map.iter().map(|(key, &value)| (key, value)).collect();
        let mut wanted: Vec<_> = expected.into_iter().collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
    }
}
