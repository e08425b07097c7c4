//! Records of ids for the cache: the oldest are written over, while others read.
//!
//! Invariant: who reads a record has it whole, or not at all. One thread writes at a time, and says which words it will write
//! before it does; who has read a record asks afterwards whether its words were among them.

use crate::memory::out_buffer::Tail;
use crate::memory::pages::Pages;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// In the number that says where a record is: from here on, how many ids it has.
const N_AT: u32 = 48;

/// So often a thread asks for its turn to write; one that writes takes some ten nanoseconds, and may be stopped meanwhile.
const TRIES: usize = 50;

/// Records of ids, and of the bytes they are for when the key does not hold these: the oldest are written over.
pub struct Ring {
    words: Pages<AtomicU32>,
    /// Words that were taken to be written, those left out at the end of a round included.
    head: AtomicU64,
    /// Of who writes a record; who waits for long does without.
    writes: Mutex<()>,
}

impl Ring {
    /// An empty one of at most `n_max` words; of none, where there are not so many addresses.
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

    /// Where the word stands that is the `n`th of all.
    fn place(&self, n: u64) -> usize {
        n as usize & (self.words.len() - 1)
    }

    /// Where the record is, and its number of ids.
    pub fn push(&self, bytes: &[u8], ids: &[u32]) -> Option<u64> {
        let n_words = bytes.len().div_ceil(4) + ids.len();
        let n_max = self.words.len();
        if n_words > n_max {
            return None;
        }
        // One who writes late, after others have written a whole round, would write over what is not his any more.
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

    /// Appends the ids of a record, if it is still there and is for `bytes`; whether it is.
    pub fn extend(&self, record: u64, bytes: &[u8], ids: &mut Tail<u32>) -> bool {
        let (start, n) = (record & ((1 << N_AT) - 1), (record >> N_AT) as usize);
        let words = &self.words[self.place(start)..];
        let (own, from) = words.split_at(bytes.len().div_ceil(4).min(words.len()));
        let same = own.iter().map(|one| one.load(Relaxed)).eq(bytes.chunks(4).map(word));
        ids.room(n).iter_mut().zip(from).take(n).for_each(|(place, id)| *place = id.load(Relaxed));
        fence(Acquire);
        // Who writes over it has taken its words before.
        let is_there = same && self.head.load(Relaxed) - start <= self.words.len() as u64;
        ids.add(if is_there { n } else { 0 });
        is_there
    }
}

/// Up to four bytes as a number.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}
