//! Pre-tokens → counts: an exact table from the bytes of a pre-token to a u64.
//!
//! Invariant: every distinct pre-token is held once, its bytes in one arena; counts are added with a check.
//! Cost: O(bytes of text) and a probe a pre-token; memory O(bytes of distinct pre-tokens + 28 a distinct pre-token).

use crate::guard::{CoreError, Result, Stop, cut, in_threads};
use crate::pattern::Pattern;
use hashbrown::HashTable;
use rustc_hash::FxHasher;
use std::hash::Hasher;

struct Entry {
    start: usize,
    length: u32,
    count: u64,
}

/// Counts of pre-tokens.
#[derive(Default)]
pub struct Counts {
    arena: Vec<u8>,
    table: HashTable<Entry>,
}

impl Counts {
    /// Adds `count` to a pre-token's.
    pub fn add(&mut self, pretoken: &[u8], count: u64) -> Result<()> {
        let arena = &self.arena;
        let bytes = |entry: &Entry| &arena[entry.start..entry.start + entry.length as usize];
        let hash = hash_of(pretoken);
        if let Some(entry) = self.table.find_mut(hash, |entry| bytes(entry) == pretoken) {
            entry.count = entry
                .count
                .checked_add(count)
                .ok_or_else(|| CoreError::Counts(format!("the count of {:?} exceeds 64 bits.", lossy(pretoken))))?;
            return Ok(());
        }
        let length = u32::try_from(pretoken.len())
            .map_err(|_| CoreError::Counts(format!("a pre-token has {} bytes; at most 2^32 - 1.", pretoken.len())))?;
        let entry = Entry { start: self.arena.len(), length, count };
        self.table.insert_unique(hash, entry, |entry| hash_of(bytes(entry)));
        self.arena.extend_from_slice(pretoken);
        Ok(())
    }

    /// Counts the pre-tokens of texts; `text(i)` for i in 0..n.
    pub fn update<'t>(
        &mut self,
        pattern: &Pattern,
        n: usize,
        text: impl Fn(usize) -> &'t str + Sync,
        bytes_before: impl Fn(usize) -> usize,
        threads: usize,
        stop: &Stop,
    ) -> Result<()> {
        let parts = cut(n, threads.max(1), bytes_before);
        // Counted aside, so that an error in the middle adds nothing.
        let counted = in_threads(parts, |part| {
            let mut own = Self::default();
            let pattern = pattern.clone();
            for i in part {
                if i % 64 == 0 {
                    stop.check()?;
                }
                pattern.split(text(i), stop, &mut |piece| own.add(piece.as_bytes(), 1))?;
            }
            Ok(own)
        })?;
        for one in counted {
            self.absorb(one)?;
        }
        Ok(())
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        if self.table.is_empty() {
            *self = other;
            return Ok(());
        }
        other
            .table
            .iter()
            .try_for_each(|entry| self.add(&other.arena[entry.start..entry.start + entry.length as usize], entry.count))
    }

    /// What the table holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.arena.capacity() + self.table.capacity() * 8 / 7 * (size_of::<Entry>() + 1)
    }

    /// Every pre-token with its count, sorted by bytes.
    pub fn sorted(&self) -> Vec<(&[u8], u64)> {
        let bytes = |entry: &Entry| &self.arena[entry.start..entry.start + entry.length as usize];
        let mut all: Vec<_> = self.table.iter().map(|entry| (bytes(entry), entry.count)).collect();
        all.sort_unstable_by_key(|(pretoken, _)| *pretoken);
        all
    }
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// The beginning of some bytes, for a message.
pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(texts: &[&str], threads: usize) -> Vec<(Vec<u8>, u64)> {
        let mut counts = Counts::default();
        let pattern = Pattern::new(&[r"[a-z]+|\s"]).unwrap();
        let stop = Stop::default();
        counts.update(&pattern, texts.len(), |i| texts[i], |i| i, threads, &stop).unwrap();
        counts.sorted().into_iter().map(|(bytes, count)| (bytes.to_vec(), count)).collect()
    }

    #[test]
    fn counts_are_exact_and_sorted_for_any_number_of_threads() {
        let expected = vec![(b" ".to_vec(), 2), (b"a".to_vec(), 3), (b"b".to_vec(), 1)];
        for threads in 1..4 {
            assert_eq!(count(&["a b", "a a", ""], threads), expected);
        }
    }

    #[test]
    fn a_count_that_exceeds_64_bits_is_an_error() {
        let mut counts = Counts::default();
        counts.add(b"x", u64::MAX).unwrap();
        assert!(matches!(counts.add(b"x", 1), Err(CoreError::Counts(_))));
        assert_eq!(counts.sorted(), [(&b"x"[..], u64::MAX)]);
    }
}
