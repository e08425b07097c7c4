//! Pre-token → ids, for pre-tokens that were met before: one cache line answers for nearly every one.
//!
//! Invariant: it may forget, and never takes one pre-token for another. An entry stands in the line that its hash names or in
//! the line beside it; where both are full the older one of the first line is forgotten, so memory is bounded and eviction
//! costs nothing. Cost: one multiplication and one line a look-up; a long pre-token, and one of more than three ids, reads a
//! record of a ring as well.

use crate::pages::Pages;
use crate::prefetch::prefetch;
use bytemuck::{Pod, Zeroable, must_cast};
use rustc_hash::FxHasher;
use std::hash::Hasher;

/// Pre-tokens up to this many bytes are their own key.
pub const SHORT_BYTES_MAX: usize = 15;
/// Longer pre-tokens than this are not kept.
pub const LONG_BYTES_MAX: usize = 256;
const INLINE_IDS_MAX: u32 = 3;
const LINES_MIN: usize = 1 << 10;
const LONG: u128 = 0x80 << 120;
/// In the key of an entry whose ids are in the ring: who looks for few ids does not find it.
const MANY: u128 = 0x40 << 120;
/// In the place of the number of ids: they are in the ring.
const IN_RING: u32 = 1 << 31;

/// `key`: the bytes of a short pre-token, its length in the top byte; for a long one LONG, its length and its hash; with MANY
/// where the ids are IN_RING; 0: no entry. `value`: up to three ids, their number last; or for more, and for a long key, where
/// their record is in the ring.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Entry {
    key: u128,
    value: [u32; 4],
}

#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([Entry; 2]);

/// A bounded memory of pre-tokens.
pub struct Cache {
    /// Addresses for as many as there may ever be; only the first `n_lines` are used, and take memory.
    lines: Pages<Line>,
    n_lines: usize,
    /// Entries that were placed since the lines became as many as they are.
    n_placed: usize,
    ring: Ring,
}

impl Cache {
    /// An empty one for some `n` pre-tokens that grows up to `bytes_max`: three quarters for the entries, up to a quarter for the
    /// ring.
    pub fn new(n: usize, bytes_max: usize) -> Self {
        let lines_max = (bytes_max / 4 * 3 / size_of::<Line>()).max(2);
        let lines_max = 1 << lines_max.ilog2();
        let n_lines = (n / 2).next_power_of_two().max(LINES_MIN).min(lines_max);
        Self {
            lines: room(n_lines, lines_max),
            n_lines,
            n_placed: 0,
            ring: Ring::new(bytes_max / 4 / size_of::<u32>()),
        }
    }

    /// What is asked for most.
    #[inline(always)]
    pub fn lines(&self) -> Lines<'_> {
        let lines = &self.lines[..self.n_lines];
        assert!(!lines.is_empty(), "a cache without lines"); // asked here, it is not asked for each pre-token
        Lines(lines)
    }

    /// The value of a pre-token's entry.
    pub fn value(&self, key: Key) -> Option<&[u32; 4]> {
        let at = self.lines().home(key);
        let own = |line: usize| self.lines[line].0.iter().find(|entry| entry.key & !MANY == key.bits());
        // While a line has room, nothing that belongs there is beside it.
        let has_room = self.lines[at].0[1].key == 0;
        let entry = own(at).or_else(|| if has_room { None } else { own(at ^ 1) });
        entry.map(|entry| &entry.value)
    }

    /// The ids of the pre-token `bytes` by the value of its entry, if their record is still there.
    pub fn ids<'v>(&'v self, value: &'v [u32; 4], bytes: &[u8]) -> Option<&'v [u32]> {
        if value[3] <= INLINE_IDS_MAX {
            return Some(&value[..value[3] as usize]);
        }
        self.ring.record(value, if bytes.len() > SHORT_BYTES_MAX { bytes } else { &[] })
    }

    /// Remembers the ids of a pre-token, and may forget another one for it.
    pub fn insert(&mut self, key: Key, bytes: &[u8], ids: &[u32]) {
        // A quarter full: at twice that, later passes over text were 0.8 to 0.96 times as fast.
        if self.n_placed > self.n_lines / 2 && self.n_lines < self.lines.len() {
            self.grow();
        }
        if let Some(value) = self.value_of(key, bytes, ids) {
            self.n_placed += 1;
            let many = if value[3] & IN_RING == 0 { 0 } else { MANY };
            self.place(Entry { key: key.bits() | many, value });
        }
    }

    fn value_of(&mut self, key: Key, bytes: &[u8], ids: &[u32]) -> Option<[u32; 4]> {
        match *ids {
            _ if key.bits() & LONG != 0 => self.ring.push(bytes, ids),
            [one] => Some([one, 0, 0, 1]),
            [one, two] => Some([one, two, 0, 2]),
            [one, two, three] => Some([one, two, three, 3]),
            _ => self.ring.push(&[], ids),
        }
    }

    fn place(&mut self, entry: Entry) {
        let at = hash_of(entry.key & !MANY) as usize & (self.n_lines - 1);
        for line in [at, at ^ 1] {
            if let Some(free) = self.lines[line].0.iter_mut().find(|old| old.key == 0 || old.key == entry.key) {
                *free = entry;
                return;
            }
        }
        let Line(entries) = &mut self.lines[at];
        *entries = [entry, entries[0]];
    }

    /// Twice as many lines. What is in a line and the one beside it goes there again, or as far behind the lines there were.
    #[cold]
    fn grow(&mut self) {
        let n_old = self.n_lines;
        (self.n_lines, self.n_placed) = (2 * n_old, 0);
        for at in (0..n_old).step_by(2) {
            let both = [at, at + 1].map(|line| std::mem::take(&mut self.lines[line]));
            for entry in both.iter().flat_map(|Line(entries)| entries).filter(|entry| entry.key != 0) {
                self.n_placed += 1;
                self.place(*entry);
            }
        }
    }
}

impl Clone for Cache {
    fn clone(&self) -> Self {
        let mut lines = room(self.n_lines, self.lines.len());
        lines[..self.n_lines].copy_from_slice(&self.lines[..self.n_lines]);
        Self { lines, n_lines: self.n_lines, n_placed: self.n_placed, ring: self.ring.clone() }
    }
}

/// `n_max` lines; `n_min` where there are not so many addresses, as under `ulimit -v`.
fn room(n_min: usize, n_max: usize) -> Pages<Line> {
    Pages::try_new(n_max).unwrap_or_else(|| Pages::new(n_min))
}

/// The lines of a cache.
#[derive(Clone, Copy)]
pub struct Lines<'c>(&'c [Line]);

impl<'c> Lines<'c> {
    /// Has the line of a pre-token fetched, which will soon be asked for.
    #[inline(always)]
    pub fn prefetch(self, key: Key) {
        prefetch(&self.0[self.home(key)]);
    }

    #[inline(always)]
    fn home(self, key: Key) -> usize {
        key.hash as usize & (self.0.len() - 1)
    }

    /// The value of a pre-token's entry, if that is in its line and the value has the ids: its last element says how many.
    #[inline(always)]
    pub fn few(self, key: Key) -> Option<&'c [u32; 4]> {
        let Line([first, second]) = &self.0[self.home(key)];
        let entry = if first.key == key.bits() { first } else { second };
        (entry.key == key.bits()).then_some(&entry.value)
    }
}

/// Records of ids, and of the bytes they are for when the key does not hold these: the oldest are written over.
#[derive(Clone)]
struct Ring {
    words: Vec<u32>,
    /// A power of two.
    n_max: usize,
    /// Words written in all, those left out at the end of a round included.
    head: u64,
}

impl Ring {
    /// An empty one of at most `n_max` words.
    fn new(n_max: usize) -> Self {
        Self { words: Vec::new(), n_max: 1 << n_max.max(1).ilog2(), head: 0 }
    }

    /// Where the word stands that is the `n`th of all.
    fn place(&self, n: u64) -> usize {
        n as usize & (self.n_max - 1)
    }

    fn push(&mut self, bytes: &[u8], ids: &[u32]) -> Option<[u32; 4]> {
        let n_words = bytes.len().div_ceil(4) + ids.len();
        if n_words > self.n_max {
            return None;
        }
        let mut at = self.place(self.head);
        if at + n_words > self.n_max {
            self.head += (self.n_max - at) as u64;
            at = 0;
        }
        if self.words.len() < at + n_words {
            self.words.resize(at + n_words, 0);
        }
        let words = bytes.chunks(4).map(word).chain(ids.iter().copied());
        self.words[at..at + n_words].iter_mut().zip(words).for_each(|(place, word)| *place = word);
        let start = self.head;
        self.head += n_words as u64;
        Some([start as u32, (start >> 32) as u32, 0, ids.len() as u32 | IN_RING])
    }

    /// The ids of a record that is still there and is for `bytes`.
    fn record(&self, value: &[u32; 4], bytes: &[u8]) -> Option<&[u32]> {
        let start = u64::from(value[0]) | u64::from(value[1]) << 32;
        if self.head - start > self.n_max as u64 {
            return None;
        }
        let at = self.place(start);
        let ids_at = at + bytes.len().div_ceil(4);
        let same = self.words[at..ids_at].iter().copied().eq(bytes.chunks(4).map(word));
        same.then(|| &self.words[ids_at..ids_at + (value[3] & !IN_RING) as usize])
    }
}

/// Up to four bytes as a number.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

/// A pre-token's key and its hash.
#[derive(Clone, Copy, Default)]
pub struct Key {
    /// A u128 that stands where a u64 can: with its place, a key takes 32 bytes.
    bits: [u64; 2],
    hash: u64,
}

impl Key {
    #[inline(always)]
    fn bits(self) -> u128 {
        must_cast(self.bits)
    }

    /// The bytes and their number, if they are few enough to be in the key.
    #[inline(always)]
    pub fn bytes(self) -> Option<[u64; 2]> {
        (self.bits() & LONG == 0).then_some(self.bits)
    }

    /// How many bytes the pre-token has.
    #[inline(always)]
    pub fn n_bytes(self) -> usize {
        let bits = self.bits();
        if bits & LONG == 0 { (bits >> 120) as usize } else { (bits >> 64) as usize & 0xffff }
    }

    /// Of the first `n` bytes, at most SHORT_BYTES_MAX.
    #[inline(always)]
    pub fn short(bytes: [u8; 16], n: usize) -> Self {
        let [mask, length] = CUTS[n & 15];
        let key = u128::from_le_bytes(bytes) & mask | length;
        Self { bits: must_cast(key), hash: hash_of(key) }
    }

    /// Of a longer pre-token, of at most LONG_BYTES_MAX.
    #[inline(never)]
    pub fn long(bytes: &[u8]) -> Self {
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        let key = LONG | (bytes.len() as u128) << 64 | u128::from(hasher.finish());
        Self { bits: must_cast(key), hash: hash_of(key) }
    }

    /// Of any pre-token; None for one that is too long to be kept.
    ///
    /// A call: inside the loop over short pre-tokens it took registers from them, and encoding was 0.95 times as fast.
    #[inline(never)]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes.len() {
            n @ ..=SHORT_BYTES_MAX => Some(Self::short(padded(bytes), n)),
            n => (n <= LONG_BYTES_MAX).then(|| Self::long(bytes)),
        }
    }
}

/// The bits of the first n bytes, and n in the last byte.
const CUTS: [[u128; 2]; 16] = {
    let mut cuts = [[0; 2]; 16];
    let mut n = 1;
    while n < 16 {
        cuts[n] = [cuts[n - 1][0] << 8 | 0xff, (n as u128) << 120];
        n += 1;
    }
    cuts
};

fn padded(bytes: &[u8]) -> [u8; 16] {
    let mut padded = [0; 16];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

/// Both halves of a product of the key's halves.
#[inline(always)]
fn hash_of(key: u128) -> u64 {
    let key = key ^ 0xd1b5_4a32_d192_ed03_9e37_79b9_7f4a_7c15;
    let product = u128::from(key as u64) * (key >> 64);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids_of(cache: &Cache, bytes: &[u8]) -> Option<Vec<u32>> {
        let key = Key::of(bytes)?;
        cache.ids(cache.value(key)?, bytes).map(<[u32]>::to_vec)
    }

    /// Pre-tokens of all lengths and ids that follow from them.
    fn sample(i: u32) -> (Vec<u8>, Vec<u32>) {
        let bytes: Vec<u8> =
            (0..1 + i % 40).map(|k| (i.wrapping_mul(k + 7) >> 3) as u8).chain(i.to_le_bytes()).collect();
        let ids = (0..1 + i % 7).map(|k| i ^ k).collect();
        (bytes, ids)
    }

    #[test]
    fn what_is_remembered_is_right_whatever_is_forgotten() {
        for bytes_max in [0, 1000, 100_000, 1 << 22] {
            let mut cache = Cache::new(0, bytes_max);
            let mut n_known = 0;
            for i in 0..20_000 {
                let (bytes, ids) = sample(i);
                cache.insert(Key::of(&bytes).unwrap(), &bytes, &ids);
                for earlier in [i, i / 2] {
                    let (bytes, ids) = sample(earlier);
                    if let Some(found) = ids_of(&cache, &bytes) {
                        assert_eq!(found, ids);
                        n_known += 1;
                    }
                }
            }
            assert!(n_known > if bytes_max > 1000 { 19_000 } else { 0 }, "{bytes_max}: {n_known}");
        }
    }

    #[test]
    fn a_copy_and_one_that_grew_have_what_was_remembered() {
        let mut cache = Cache::new(0, 1 << 26);
        (0..50_000).map(sample).for_each(|(bytes, ids)| cache.insert(Key::of(&bytes).unwrap(), &bytes, &ids));
        assert!(cache.n_lines > LINES_MIN);
        let copy = cache.clone();
        let mut n_known = 0;
        for (bytes, ids) in (0..50_000).map(sample) {
            let found = ids_of(&cache, &bytes);
            assert_eq!(ids_of(&copy, &bytes), found);
            if let Some(found) = found {
                assert_eq!(found, ids);
                n_known += 1;
            }
        }
        assert!(n_known > 49_000, "{n_known}");
    }

    #[test]
    fn memory_stays_below_its_bound() {
        let mut cache = Cache::new(0, 1 << 20);
        for i in 0..200_000 {
            let (bytes, ids) = sample(i);
            cache.insert(Key::of(&bytes).unwrap(), &bytes, &ids);
        }
        assert!(cache.lines.len() * size_of::<Line>() + cache.ring.words.len() * 4 <= 1 << 20);
        assert_eq!(cache.n_lines, cache.lines.len());
    }

    #[test]
    fn lengths_and_zero_bytes_are_told_apart() {
        let mut cache = Cache::new(0, 1 << 20);
        cache.insert(Key::of(b"a").unwrap(), b"a", &[1]);
        cache.insert(Key::of(b"a\0").unwrap(), b"a\0", &[2]);
        assert_eq!((ids_of(&cache, b"a"), ids_of(&cache, b"a\0")), (Some(vec![1]), Some(vec![2])));
        assert_eq!(Key::short(*b"ab and something", 2).bits(), Key::of(b"ab").unwrap().bits());
    }

    #[test]
    fn long_pretokens_with_one_hash_are_told_apart() {
        let mut cache = Cache::new(0, 1 << 20);
        let (one, other) = ([b'a'; 20], [b'b'; 20]);
        let key = Key::long(&one);
        cache.insert(key, &one, &[1, 2]);
        let value = cache.value(key).unwrap();
        assert_eq!((cache.ids(value, &one), cache.ids(value, &other)), (Some(&[1, 2][..]), None));
    }

    #[test]
    fn an_entry_takes_half_a_line() {
        assert_eq!((size_of::<Entry>(), size_of::<Line>(), align_of::<Line>()), (32, 64, 64));
    }
}
