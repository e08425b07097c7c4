//! One cache for all threads that encode with a vocabulary: what one has met, the others know.
//!
//! Invariant: nobody waits. A thread that alone reads the cache has it grow in its place; where others read it, they go on
//! with what there is until they next add to it, and have the larger one then. One that is full is followed by an empty one,
//! and asked when that does not know: what is still met moves over, and the rest is let go with the next change.
//! Cost: a pre-token that two threads meet at once is merged twice.

use crate::cache::{Cache, Key, Lines};
use crate::tail::Tail;
use std::sync::{Arc, Mutex, PoisonError};

/// What all threads know.
pub struct Shared {
    /// How many pre-tokens there are at least, by guess.
    n: usize,
    bytes_max: usize,
    known: Mutex<Option<Known>>,
}

#[derive(Clone)]
struct Known {
    now: Arc<Cache>,
    /// One that was full.
    before: Option<Arc<Cache>>,
}

impl Shared {
    /// Nothing, of some `n` pre-tokens that may come; up to `bytes_max` bytes of memory.
    pub fn new(n: usize, bytes_max: usize) -> Self {
        Self { n, bytes_max, known: Mutex::default() }
    }

    /// Forgets all, and gives the memory back when nobody reads it any more.
    pub fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// For a thread that begins to encode. It is to be dropped when that ends: only who is alone can grow in place.
    pub fn reader(&self) -> Reader<'_> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_with(|| Known { now: Arc::new(self.empty()), before: None });
        Reader { shared: self, known: known.clone() }
    }

    fn empty(&self) -> Cache {
        Cache::new(self.n, self.bytes_max)
    }
}

/// What a thread knows.
pub struct Reader<'s> {
    shared: &'s Shared,
    known: Known,
}

impl Reader<'_> {
    /// What is asked for most.
    #[inline(always)]
    pub fn lines(&self) -> Lines<'_> {
        self.known.now.lines()
    }

    /// Appends the ids of a pre-token, if they are remembered; whether they are.
    pub fn extend(&mut self, key: Key, bytes: &[u8], ids: &mut Tail<u32>) -> bool {
        if self.known.now.extend(key, bytes, ids) {
            return true;
        }
        let from = ids.n();
        let was_known = self.known.before.as_ref().is_some_and(|before| before.extend(key, bytes, ids));
        if was_known {
            self.insert(key, bytes, &ids.as_slice()[from..]);
        }
        was_known
    }

    /// Remembers the ids of a pre-token.
    pub fn insert(&mut self, key: Key, bytes: &[u8], ids: &[u32]) {
        if !self.known.now.insert(key, bytes, ids) {
            self.make_room();
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        let Ok(mut known) = self.shared.known.try_lock() else { return }; // another thread does it
        if let Some(newer) = known.take_if(|known| !Arc::ptr_eq(&known.now, &self.known.now)) {
            self.known = newer.clone();
            *known = Some(newer);
            return;
        }
        *known = None;
        let Known { now, before } = &mut self.known;
        let next = match (now.is_full(), Arc::get_mut(now)) {
            (true, _) => Some(self.shared.empty()),
            (false, None) => Some(now.larger()),
            (false, Some(alone)) => {
                alone.grow();
                None
            }
        };
        let is_larger = next.is_some() && !now.is_full();
        if let Some(next) = next {
            *before = Some(std::mem::replace(now, Arc::new(next)));
        }
        *known = Some(self.known.clone());
        drop(known);
        // Now that the others can have it too, what they add to the one before is not lost.
        if is_larger && let Some(before) = &self.known.before {
            self.known.now.add_all_of(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids_of(reader: &mut Reader, i: u32) -> Option<Vec<u32>> {
        let (bytes, mut ids) = (i.to_le_bytes(), Tail::default());
        reader.extend(Key::of(&bytes)?, &bytes, &mut ids).then(|| ids.take())
    }

    fn insert(reader: &mut Reader, i: u32) {
        reader.insert(Key::of(&i.to_le_bytes()).unwrap(), &i.to_le_bytes(), &vec![i; i as usize % 6 + 1]);
    }

    #[test]
    fn what_one_thread_met_another_knows_and_a_larger_one_is_had_with_the_next_addition() {
        let shared = Shared::new(0, 1 << 24);
        let (mut one, mut other) = (shared.reader(), shared.reader());
        (0..5000).for_each(|i| insert(&mut one, i));
        assert!(!Arc::ptr_eq(&one.known.now, &other.known.now));
        (0..2).for_each(|_| insert(&mut other, 5000));
        assert!(Arc::ptr_eq(&one.known.now, &other.known.now));
        let n = (0..5000).filter(|&i| ids_of(&mut other, i) == Some(vec![i; i as usize % 6 + 1])).count();
        assert!(n > 4900, "{n}");
        shared.forget();
        assert_eq!(ids_of(&mut shared.reader(), 1), None);
    }

    #[test]
    fn what_is_met_again_and_again_is_not_forgotten_and_memory_stays_bounded() {
        let shared = Shared::new(0, 1 << 20);
        for n_readers in [1, 2] {
            let _others: Vec<_> = (1..n_readers).map(|_| shared.reader()).collect();
            let (mut reader, mut n_known) = (shared.reader(), 0);
            for i in 0..100_000 {
                insert(&mut reader, i);
                n_known += usize::from(ids_of(&mut reader, i % 10).is_some());
            }
            assert!(n_known > 99_000, "{n_known}");
            assert_eq!((0..50_000).find_map(|i| ids_of(&mut reader, i + 20)), None);
        }
    }

    #[test]
    fn threads_at_once_find_what_they_put_in() {
        let shared = Shared::new(0, 1 << 22);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let shared = &shared;
                scope.spawn(move || {
                    for round in 0..20 {
                        let mut reader = shared.reader();
                        for i in (0..3000).map(|i| (round * 1000 + i) * (thread % 2 + 1)) {
                            match ids_of(&mut reader, i) {
                                Some(found) => assert_eq!(found, vec![i; i as usize % 6 + 1]),
                                None => insert(&mut reader, i),
                            }
                        }
                    }
                });
            }
        });
    }
}
