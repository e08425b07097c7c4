//! A hash table from byte strings to small values, made for millions of strings of up to 15 bytes.
//!
//! Invariant: it never exceeds `bytes_max`, even while it grows. The key of an entry has 16 bytes: up to 15 of the string, zeros,
//! and 1 + its length. So equality is one comparison, and a key of zeros is a free entry. The bytes of a longer string are in an
//! arena, and its key says where. Cost: O(1) per look-up, at most 3/4 of the entries in use, no allocation per string.

use crate::hash::{Seed, word};

const SHORT_BYTES_MAX: usize = 15;
/// The last byte of a key whose string is in the arena.
const LONG: u8 = 255;
const ENTRIES_MIN: usize = 64;
const BLOCK_BYTES_MIN: usize = 1 << 12;
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// A string and its value: 24 bytes with a u64. Entries of 32 bytes, two per cache line, were not faster.
#[derive(Clone, Copy)]
pub struct Entry<V> {
    key: [u8; 16],
    /// The value of the string.
    pub value: V,
}

/// A hash table of strings and their values.
pub struct Table<V> {
    entries: Vec<Entry<V>>,
    n_used: usize,
    seed: Seed,
    arena: Arena,
    bytes_max: usize,
}

/// The entries of a table, sorted: first strings of up to 15 bytes, then longer ones.
pub struct Sorted<V> {
    entries: Vec<Entry<V>>,
    n_short: usize,
    arena: Arena,
}

/// The number of strings, and the bytes of the longer ones.
#[derive(Clone, Copy)]
pub struct Shape {
    n_strings: usize,
    arena_bytes: usize,
}

/// Strings in blocks. Written bytes never move, so growing copies nothing and holds nothing twice.
#[derive(Default)]
struct Arena {
    blocks: Vec<Vec<u8>>,
    n_bytes: usize,
}

/// Where the bytes of a string of more than 15 bytes are. `tag`: 24 bits of its hash.
#[derive(Clone, Copy)]
struct Place {
    block: u32,
    start: u32,
    length: u32,
    tag: u32,
}

impl<V: Copy + Default> Table<V> {
    /// An empty table that may take `bytes_max` of memory.
    pub fn new(bytes_max: usize) -> Self {
        Self { entries: Vec::new(), n_used: 0, seed: Seed::default(), arena: Arena::default(), bytes_max }
    }

    /// An empty table with as many entries as `bytes_max` allows for strings of the given shape.
    pub fn like(shape: Shape, bytes_max: usize) -> Self {
        let used = shape.n_strings * size_of::<Entry<V>>() * 4 / 3;
        let share = bytes_max as u128 * used as u128 / (used + shape.arena_bytes).max(1) as u128;
        // Leaves some room for longer strings in any case; otherwise the first one would find the table full.
        let share = (share as usize).min(bytes_max - bytes_max / 8);
        let n_entries = (share / size_of::<Entry<V>>()).max(ENTRIES_MIN);
        Self { entries: vec![Entry::free(); n_entries], ..Self::new(bytes_max) }
    }

    /// The memory that the table may take, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.n_used
    }

    /// Whether it holds no strings.
    pub fn is_empty(&self) -> bool {
        self.n_used == 0
    }

    /// The memory that the table takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<V>>() + self.arena.n_bytes
    }

    /// The value of a string, which is the default for a new one; None if a new one no longer fits.
    #[inline]
    pub fn slot(&mut self, bytes: &[u8]) -> Option<&mut V> {
        if bytes.len() > SHORT_BYTES_MAX { self.long_slot(bytes) } else { self.short_slot(pack(bytes)) }
    }

    /// The same for a part of `text`. It reads 16 bytes at once if there are that many, which avoids an unpredictable branch on
    /// the length (English words: 13 to 16 ns instead of 20 to 24).
    #[inline]
    pub fn slot_of(&mut self, bytes: &[u8], text: &[u8]) -> Option<&mut V> {
        // If `bytes` is not part of `text`, this is out of its range, and the slow way is taken.
        let start = (bytes.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        match text.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
            Some(chunk) if bytes.len() <= SHORT_BYTES_MAX => self.short_slot(pack_chunk(*chunk, bytes.len())),
            _ => self.slot(bytes),
        }
    }

    #[inline]
    fn short_slot(&mut self, key: u128) -> Option<&mut V> {
        let hash = self.seed.hash_short(key);
        let mut at = self.find(hash, |entry| entry.number() == key);
        if self.entries.get(at).is_none_or(|entry| entry.number() == 0) {
            if self.is_full() {
                if !self.grow() {
                    return None;
                }
                at = self.find(hash, |_| false);
            }
            self.entries[at] = Entry { key: key.to_le_bytes(), value: V::default() };
            self.n_used += 1;
        }
        Some(&mut self.entries[at].value)
    }

    fn long_slot(&mut self, bytes: &[u8]) -> Option<&mut V> {
        let hash = self.seed.hash_long(bytes);
        let (tag, length) = (hash as u32 & 0xff_ffff, u32::try_from(bytes.len()).ok()?);
        let arena = &self.arena;
        let mut at = self.find(hash, |entry| {
            entry.key[15] == LONG && {
                let place = entry.place();
                place.tag == tag && place.length == length && arena.bytes(place) == bytes
            }
        });
        if self.entries.get(at).is_none_or(|entry| entry.number() == 0) {
            if self.is_full() {
                if !self.grow() {
                    return None;
                }
                at = self.find(hash, |_| false);
            }
            let room = self.bytes_max.saturating_sub(self.entries.len() * size_of::<Entry<V>>());
            let (block, start) = self.arena.push(bytes, room)?;
            self.entries[at] = Entry { key: Place { block, start, length, tag }.key(), value: V::default() };
            self.n_used += 1;
        }
        Some(&mut self.entries[at].value)
    }

    /// The index of the string with this hash, or of the free entry for it.
    #[inline]
    fn find(&self, hash: u64, is_it: impl Fn(&Entry<V>) -> bool) -> usize {
        let n = self.entries.len();
        // The upper half of the product is in 0..n for any n, without a division.
        let mut at = ((u128::from(hash) * n as u128) >> 64) as usize;
        while let Some(entry) = self.entries.get(at) {
            if is_it(entry) || entry.number() == 0 {
                return at;
            }
            at = if at + 1 == n { 0 } else { at + 1 };
        }
        at
    }

    fn is_full(&self) -> bool {
        (self.n_used + 1) * 4 > self.entries.len() * 3
    }

    /// Doubles the entries, or takes as many as fit beside the old ones. Returns whether that is enough to be useful.
    #[cold]
    fn grow(&mut self) -> bool {
        let n_old = self.entries.len();
        let room = self.bytes_max.saturating_sub(self.arena.n_bytes) / size_of::<Entry<V>>();
        let n_new = (n_old * 2).max(ENTRIES_MIN).min(room.saturating_sub(n_old));
        if n_new < n_old + n_old / 4 || n_new < ENTRIES_MIN {
            return false;
        }
        let old = std::mem::replace(&mut self.entries, vec![Entry::free(); n_new]);
        for entry in old {
            if entry.number() != 0 {
                let hash = match entry.key[15] {
                    LONG => self.seed.hash_long(self.arena.bytes(entry.place())),
                    _ => self.seed.hash_short(entry.number()),
                };
                let at = self.find(hash, |_| false);
                self.entries[at] = entry;
            }
        }
        true
    }

    /// Every string and its value, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        let used = self.entries.iter().filter(|entry| entry.number() != 0);
        used.map(|entry| (entry.bytes(&self.arena), &entry.value))
    }

    /// The entries, sorted in place. Unused memory is freed.
    pub fn into_sorted(mut self) -> Sorted<V> {
        self.entries.retain(|entry| entry.number() != 0);
        self.entries.shrink_to_fit();
        let mut n_short = 0;
        for at in 0..self.entries.len() {
            if self.entries[at].key[15] != LONG {
                self.entries.swap(at, n_short);
                n_short += 1;
            }
        }
        let arena = self.arena;
        let (short, long) = self.entries.split_at_mut(n_short);
        // Big-endian puts the first byte first. The length, in the last byte, puts "a" before "a\0".
        short.sort_unstable_by_key(|entry| u128::from_be_bytes(entry.key));
        long.sort_unstable_by(|one, other| arena.bytes(one.place()).cmp(arena.bytes(other.place())));
        Sorted { entries: self.entries, n_short, arena }
    }
}

impl<V> Sorted<V> {
    /// The number of strings of up to 15 bytes. They come first, then the longer ones, each group sorted.
    pub fn n_short(&self) -> usize {
        self.n_short
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of strings, and the bytes of the longer ones.
    pub fn shape(&self) -> Shape {
        Shape { n_strings: self.entries.len(), arena_bytes: self.arena.n_bytes }
    }

    /// The bytes of the string at `row`.
    #[inline]
    pub fn bytes(&self, row: usize) -> &[u8] {
        self.entries[row].bytes(&self.arena)
    }

    /// The value of the string at `row`.
    #[inline]
    pub fn value(&self, row: usize) -> &V {
        &self.entries[row].value
    }
}

impl<V: Default> Entry<V> {
    fn free() -> Self {
        Self { key: [0; 16], value: V::default() }
    }
}

impl<V> Entry<V> {
    #[inline]
    fn number(&self) -> u128 {
        u128::from_le_bytes(self.key)
    }

    #[inline]
    fn bytes<'s>(&'s self, arena: &'s Arena) -> &'s [u8] {
        match self.key[15] {
            LONG => arena.bytes(self.place()),
            length => &self.key[..usize::from(length) - 1],
        }
    }

    fn place(&self) -> Place {
        let number = self.number();
        let tag = (number >> 96) as u32 & 0xff_ffff;
        Place { block: number as u32, start: (number >> 32) as u32, length: (number >> 64) as u32, tag }
    }
}

impl Place {
    fn key(self) -> [u8; 16] {
        let last = u128::from(self.tag) | u128::from(LONG) << 24;
        (u128::from(self.block) | u128::from(self.start) << 32 | u128::from(self.length) << 64 | last << 96)
            .to_le_bytes()
    }
}

impl Arena {
    fn bytes(&self, place: Place) -> &[u8] {
        &self.blocks[place.block as usize][place.start as usize..][..place.length as usize]
    }

    /// Copies the string, and gives its block and start; None if the arena would exceed `room`.
    fn push(&mut self, bytes: &[u8], room: usize) -> Option<(u32, u32)> {
        if self.blocks.last().is_none_or(|block| block.capacity() - block.len() < bytes.len()) {
            // A new block is a quarter of the arena: few blocks, and little unused room.
            let n_new = (self.n_bytes / 4).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX).max(bytes.len());
            if self.n_bytes + n_new > room {
                return None;
            }
            self.blocks.push(Vec::with_capacity(n_new));
            self.n_bytes += n_new;
        }
        let place = u32::try_from(self.blocks.len() - 1).ok()?;
        let block = self.blocks.last_mut()?;
        let start = u32::try_from(block.len()).ok()?;
        block.extend_from_slice(bytes);
        Some((place, start))
    }
}

/// The same as `pack`, for the first bytes of a chunk.
#[inline]
fn pack_chunk(chunk: [u8; 16], length: usize) -> u128 {
    let there = (1_u128 << (8 * length)) - 1;
    u128::from_le_bytes(chunk) & there | (length as u128 + 1) << 120
}

/// Up to 15 bytes as a number: the bytes from the lowest on, and 1 + the length in the highest.
#[inline]
fn pack(bytes: &[u8]) -> u128 {
    let length = bytes.len();
    let (low, mut high) = (word(bytes), 0);
    if let Some(last) = bytes.last_chunk::<8>() {
        // The last 8 bytes overlap the first 8 by 16 - length. Two shifts, because a single shift by 64 is not allowed.
        high = (u64::from_le_bytes(*last) >> 1) >> (8 * (16 - length) - 1);
    }
    u128::from(low) | u128::from(high) << 64 | (length as u128 + 1) << 120
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn keys() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = vec![vec![], b"a".to_vec(), b"a\0".to_vec(), b"a\0\0".to_vec()];
        for n in 0..3000_u32 {
            keys.push(n.to_string().into_bytes());
            keys.push(format!("a long string with the number {n}").into_bytes());
        }
        keys.extend((1..70).map(|n| vec![b'x'; n]));
        keys
    }

    fn rows(sorted: &Sorted<u64>) -> Vec<(Vec<u8>, u64)> {
        let mut rows: Vec<_> = (0..sorted.len()).map(|row| (sorted.bytes(row).to_vec(), *sorted.value(row))).collect();
        let (short, long) = rows.split_at(sorted.n_short());
        assert!(short.is_sorted() && long.is_sorted());
        rows.sort();
        rows
    }

    #[test]
    fn packing_keeps_every_byte_and_the_length() {
        for length in 0..=15_usize {
            let bytes: Vec<u8> = (1..=length as u8).map(|byte| byte * 16 + 1).collect();
            let packed = pack(&bytes).to_le_bytes();
            assert_eq!(&packed[..length], &bytes[..]);
            assert!(packed[length..15].iter().all(|&byte| byte == 0));
            assert_eq!(usize::from(packed[15]), length + 1);
            let chunk: Vec<u8> = bytes.iter().copied().chain([0xaa; 16]).take(16).collect();
            assert_eq!(pack_chunk(chunk.try_into().unwrap(), length), pack(&bytes));
        }
    }

    #[test]
    fn values_are_kept_apart_and_come_out_in_order() {
        let mut table = Table::<u64>::new(usize::MAX);
        let mut expected = BTreeMap::new();
        let text = keys().concat();
        let mut start = 0;
        for (n, key) in keys().iter().enumerate() {
            let part = &text[start..start + key.len()];
            start += key.len();
            for i in 0..n % 3 + 1 {
                let slot = if i == 1 { table.slot_of(part, &text) } else { table.slot_of(key, &text) };
                *slot.unwrap() += 1;
                *expected.entry(key.clone()).or_insert(0) += 1;
            }
        }
        assert_eq!(table.len(), expected.len());
        assert_eq!(rows(&table.into_sorted()), expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_full_table_takes_no_new_string_keeps_its_values_and_never_holds_more_than_it_may() {
        for bytes_max in [0, 2_000, 10_000, 100_000, 300_000] {
            let mut table = Table::<u64>::new(bytes_max);
            let mut kept = BTreeMap::new();
            for key in keys().iter().chain(&keys()) {
                let is_new = !kept.contains_key(key);
                match table.slot(key) {
                    Some(count) => *count += 1,
                    None => {
                        assert!(is_new);
                        continue;
                    }
                }
                *kept.entry(key.clone()).or_insert(0) += 1;
                assert!(table.memory_bytes() <= bytes_max);
            }
            assert!(bytes_max < 2_000 || !kept.is_empty());
            let sorted = table.into_sorted();
            let again = Table::<u64>::like(sorted.shape(), bytes_max);
            assert!(again.memory_bytes() <= bytes_max.max(ENTRIES_MIN * 24));
            assert_eq!(rows(&sorted), kept.into_iter().collect::<Vec<_>>());
        }
    }
}
