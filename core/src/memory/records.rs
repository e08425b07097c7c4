//! A ring of records of ids for the cache. The oldest records are overwritten while other threads read.
//!
//! Invariant: a reader gets a whole record or none. Only one thread writes at a time, and it claims the words before it writes
//! them. A reader checks afterwards whether its words had been claimed.

use crate::memory::out_buffer::Tail;
use crate::memory::pages::Pages;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// The bit of a record's number from which on it holds the number of ids; the lower bits hold its place.
const N_AT: u32 = 48;

/// How often a thread tries to get the write lock. A write takes some ten nanoseconds, but its thread may be preempted meanwhile.
const TRIES: usize = 50;

/// Records of ids, each with its pre-token's bytes if the key does not hold them. The oldest are overwritten.
pub struct Ring {
    words: Pages<AtomicU32>,
    /// The number of words claimed so far, including those skipped at the end of a round.
    head: AtomicU64,
    /// The write lock. A thread that waits too long does without a record.
    writes: Mutex<()>,
}

impl Ring {
    /// An empty ring of at most `n_max` words, or of one word if there is not enough address space.
    pub fn new(n_max: usize) -> Self {
        let n = 1 << n_max.max(1).ilog2();
        Self {
            words: Pages::try_new(n).unwrap_or_else(|| Pages::new(1)),
            head: AtomicU64::new(0),
            writes: Mutex::default(),
        }
    }

    #[cfg(test)]
    pub fn n_bytes(&self) -> usize {
        self.words.len() * size_of::<u32>()
    }

    /// The index of the `n`th word of all.
    fn place(&self, n: u64) -> usize {
        n as usize & (self.words.len() - 1)
    }

    /// Adds a record. Gives its number, which holds its place and its number of ids.
    pub fn push(&self, bytes: &[u8], ids: &[u32]) -> Option<u64> {
        let n_words = bytes.len().div_ceil(4) + ids.len();
        let n_max = self.words.len();
        if n_words > n_max {
            return None;
        }
        // Locked, because a writer that is a whole round late would overwrite words that are no longer its own.
        let _writes = (0..TRIES).find_map(|_| self.writes.try_lock().inspect_err(|_| std::hint::spin_loop()).ok())?;
        let mut start = self.head.load(Relaxed);
        let at = self.place(start);
        if at + n_words > n_max {
            start += (n_max - at) as u64;
        }
        self.head.store(start + n_words as u64, Relaxed);
        fence(Release);
        let words = bytes.chunks(4).map(word).chain(ids.iter().copied());
        self.words[self.place(start)..].iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
        (start >> N_AT == 0).then_some(start | (ids.len() as u64) << N_AT)
    }

    /// Appends the ids of a record if it still exists and is for `bytes`. Returns whether it is.
    pub fn extend(&self, record: u64, bytes: &[u8], ids: &mut Tail<u32>) -> bool {
        let (start, n) = (record & ((1 << N_AT) - 1), (record >> N_AT) as usize);
        let words = &self.words[self.place(start)..];
        let (own, from) = words.split_at(bytes.len().div_ceil(4).min(words.len()));
        let same = own.iter().map(|one| one.load(Relaxed)).eq(bytes.chunks(4).map(word));
        ids.room(n).iter_mut().zip(from).take(n).for_each(|(place, id)| *place = id.load(Relaxed));
        fence(Acquire);
        // A writer that overwrites the record has claimed its words before.
        let is_there = same && self.head.load(Relaxed) - start <= self.words.len() as u64;
        ids.add(if is_there { n } else { 0 });
        is_there
    }
}

/// Up to four bytes as a number.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}
