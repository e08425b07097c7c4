//! Pre-token → ids, for pre-tokens that were met before: one cache line answers for a short one.
//!
//! Invariant: it may forget, and never takes one pre-token for another. Two entries that share a 64-byte line push out the
//! older one, so memory is bounded and eviction costs nothing. Cost: one multiplication and one line a look-up; a long
//! pre-token, and one of more than three ids, reads a record of a ring as well.

use crate::prefetch::prefetch;
use rustc_hash::FxHasher;
use std::hash::Hasher;

/// Pre-tokens up to this many bytes are their own key.
pub const SHORT_BYTES_MAX: usize = 15;
/// Longer pre-tokens than this are not kept.
const LONG_BYTES_MAX: usize = 256;
const INLINE_IDS_MAX: u32 = 3;
const FRONT_LINES: usize = 1 << 12;
const LINES_MIN: usize = 1 << 10;
const LONG: u128 = 0x80 << 120;

/// `key`: the bytes of a short pre-token, its length in the top byte; for a long one LONG, its length and its hash; 0: no
/// entry. `value`: up to three ids, their number last; or for more, and for a long key, where their record is in the ring.
#[derive(Clone, Copy, Default)]
struct Entry {
    key: u128,
    value: [u32; 4],
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([Entry; 2]);

/// What a look-up gives: ids in place, or the ids of a record.
pub enum Found<'c> {
    Few([u32; 4], usize),
    Many(&'c [u32]),
}

/// A bounded memory of pre-tokens. A thread has one of its own; one that is filled beforehand is shared and only read.
pub struct Cache {
    lines: Vec<Line>,
    lines_max: usize,
    n_since_growth: usize,
    ring: Ring,
}

impl Cache {
    /// An empty one that grows up to `bytes_max`: three quarters for the entries, a quarter for the ring.
    pub fn new(bytes_max: usize) -> Self {
        let lines_max = (bytes_max / 4 * 3 / size_of::<Line>()).max(1);
        let lines_max = 1 << lines_max.ilog2();
        Self {
            lines: vec![Line::default(); LINES_MIN.min(lines_max)],
            lines_max,
            n_since_growth: 0,
            ring: Ring { words: Vec::new(), n_max: bytes_max / 4 / size_of::<u32>(), head: 0 },
        }
    }

    /// An empty one with places for twice `n_entries`, which does not grow.
    pub fn new_whole(n_entries: usize) -> Self {
        let lines_max = n_entries.max(1).next_power_of_two();
        let ring = Ring { words: Vec::new(), n_max: 4 * n_entries, head: 0 };
        Self { lines: vec![Line::default(); lines_max], lines_max, n_since_growth: 0, ring }
    }

    /// Has the line of a pre-token fetched, which will soon be asked for.
    #[inline(always)]
    pub fn prefetch(&self, key: Key) {
        prefetch(&self.lines[key.hash as usize & (self.lines.len() - 1)]);
    }

    /// The ids of a short pre-token.
    #[inline(always)]
    pub fn short(&self, key: Key) -> Option<Found<'_>> {
        let value = self.value(key)?;
        if value[3] <= INLINE_IDS_MAX {
            return Some(Found::Few(value, value[3] as usize));
        }
        self.ring.record(&value, &[]).map(Found::Many)
    }

    /// The ids of a pre-token of more than SHORT_BYTES_MAX bytes.
    pub fn long(&self, key: Key, bytes: &[u8]) -> Option<&[u32]> {
        self.ring.record(&self.value(key)?, bytes)
    }

    #[inline(always)]
    fn value(&self, key: Key) -> Option<[u32; 4]> {
        let Line([first, second]) = self.lines[key.hash as usize & (self.lines.len() - 1)];
        if first.key == key.key {
            return Some(first.value);
        }
        if second.key == key.key { Some(second.value) } else { None }
    }

    /// Remembers the ids of a pre-token, and may forget another one for it.
    pub fn insert(&mut self, key: Key, bytes: &[u8], ids: &[u32]) {
        if self.n_since_growth > self.lines.len() && self.lines.len() < self.lines_max {
            self.grow();
        }
        if let Some(value) = self.value_of(key, bytes, ids) {
            self.n_since_growth += 1;
            self.place(Entry { key: key.key, value });
        }
    }

    /// Remembers it where there is an empty place in its line.
    pub fn insert_if_free(&mut self, key: Key, bytes: &[u8], ids: &[u32]) {
        let Line([_, second]) = self.lines[key.hash as usize & (self.lines.len() - 1)];
        if second.key == 0 {
            self.insert(key, bytes, ids);
        }
    }

    fn value_of(&mut self, key: Key, bytes: &[u8], ids: &[u32]) -> Option<[u32; 4]> {
        match *ids {
            _ if key.key & LONG != 0 => self.ring.push(bytes, ids),
            [one] => Some([one, 0, 0, 1]),
            [one, two] => Some([one, two, 0, 2]),
            [one, two, three] => Some([one, two, three, 3]),
            _ => self.ring.push(&[], ids),
        }
    }

    /// The newest of a line comes first.
    fn place(&mut self, entry: Entry) {
        let mask = self.lines.len() - 1;
        let Line(entries) = &mut self.lines[hash_of(entry.key) as usize & mask];
        *entries = [entry, entries[0]];
    }

    #[cold]
    fn grow(&mut self) {
        let longer = vec![Line::default(); 2 * self.lines.len()];
        let lines = std::mem::replace(&mut self.lines, longer);
        self.n_since_growth = 0;
        for entry in lines.iter().flat_map(|Line([first, second])| [second, first]).filter(|entry| entry.key != 0) {
            self.place(*entry);
        }
    }
}

/// The pre-tokens of few ids that came last, two in a line with the latest first: so small that it stays in the core's own
/// cache and its pages in the table of pages, where the larger memories do not.
///
/// With it english text was encoded 1.9 times as fast, with 2^10 lines 1.3 times, with 2^14 1.7 times; looking up 64
/// pre-tokens at a time, so that the memory fetches several lines at once, gave 1.6 times instead.
pub struct Front(Vec<Line>);

impl Default for Front {
    fn default() -> Self {
        Self(vec![Line::default(); FRONT_LINES])
    }
}

impl Front {
    #[inline(always)]
    pub fn get(&mut self, key: Key) -> Option<[u32; 4]> {
        let Line([first, second]) = &mut self.0[key.hash as usize % FRONT_LINES];
        if first.key != key.key {
            if second.key != key.key {
                return None;
            }
            std::mem::swap(first, second);
        }
        Some(first.value)
    }

    /// Remembers a pre-token in the place of the one that came earlier of the two in its line.
    pub fn put(&mut self, key: Key, value: [u32; 4]) {
        let Line(entries) = &mut self.0[key.hash as usize % FRONT_LINES];
        *entries = [Entry { key: key.key, value }, entries[0]];
    }
}

/// Records of ids, and of the bytes they are for when the key does not hold these: the oldest are written over.
struct Ring {
    words: Vec<u32>,
    n_max: usize,
    /// Words written in all, those left out at the end of a round included.
    head: u64,
}

impl Ring {
    fn push(&mut self, bytes: &[u8], ids: &[u32]) -> Option<[u32; 4]> {
        let n_words = bytes.len().div_ceil(4) + ids.len();
        if n_words > self.n_max {
            return None;
        }
        let mut at = (self.head % self.n_max as u64) as usize;
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
        Some([start as u32, (start >> 32) as u32, 0, ids.len() as u32])
    }

    /// The ids of a record that is still there and is for `bytes`.
    fn record(&self, value: &[u32; 4], bytes: &[u8]) -> Option<&[u32]> {
        let start = u64::from(value[0]) | u64::from(value[1]) << 32;
        if self.head - start > self.n_max as u64 {
            return None;
        }
        let at = (start % self.n_max as u64) as usize;
        let ids_at = at + bytes.len().div_ceil(4);
        let same = self.words[at..ids_at].iter().copied().eq(bytes.chunks(4).map(word));
        same.then(|| &self.words[ids_at..ids_at + value[3] as usize])
    }
}

/// Up to four bytes as a number.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

/// A pre-token's key and its hash.
#[derive(Clone, Copy, Default)]
pub struct Key {
    key: u128,
    hash: u64,
}

impl Key {
    /// Of the `n` bytes of `text` from `at` on, at most SHORT_BYTES_MAX.
    #[inline(always)]
    pub fn short(text: &[u8], at: usize, n: usize) -> Self {
        let bytes = match text.get(at..at + 16).and_then(|bytes| bytes.first_chunk::<16>()) {
            Some(bytes) => *bytes,
            None => near_the_end(&text[at..at + n]),
        };
        let key = u128::from_le_bytes(bytes) & MASKS[n & 15] | (n as u128) << 120;
        Self { key, hash: hash_of(key) }
    }

    /// Of a longer pre-token; None for one that is too long to be kept.
    pub fn long(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > LONG_BYTES_MAX {
            return None;
        }
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        let key = LONG | (bytes.len() as u128) << 64 | u128::from(hasher.finish());
        Some(Self { key, hash: hash_of(key) })
    }

    /// Of any pre-token.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > SHORT_BYTES_MAX { Self::long(bytes) } else { Some(Self::short(bytes, 0, bytes.len())) }
    }
}

const MASKS: [u128; 16] = {
    let mut masks = [0; 16];
    let mut n = 1;
    while n < 16 {
        masks[n] = masks[n - 1] << 8 | 0xff;
        n += 1;
    }
    masks
};

#[inline(never)]
fn near_the_end(bytes: &[u8]) -> [u8; 16] {
    let mut padded = [0; 16];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

/// Both halves of a product of the key's halves.
#[inline(always)]
fn hash_of(key: u128) -> u64 {
    let (low, high) = (key as u64 ^ 0x9e37_79b9_7f4a_7c15, (key >> 64) as u64 ^ 0xd1b5_4a32_d192_ed03);
    let product = u128::from(low) * u128::from(high);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids_of(cache: &Cache, bytes: &[u8]) -> Option<Vec<u32>> {
        let key = Key::of(bytes)?;
        if bytes.len() > SHORT_BYTES_MAX {
            return cache.long(key, bytes).map(<[u32]>::to_vec);
        }
        cache.short(key).map(|found| match found {
            Found::Few(four, n) => four[..n].to_vec(),
            Found::Many(ids) => ids.to_vec(),
        })
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
            let mut cache = Cache::new(bytes_max);
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
    fn the_front_keeps_the_two_that_came_last_of_a_line() {
        let mut front = Front::default();
        let keys: Vec<Key> = (0..50_000_u32).map(|i| Key::short(&i.to_le_bytes(), 0, 4)).collect();
        let line = |key: &&Key| (key.hash as usize).is_multiple_of(FRONT_LINES);
        let same: Vec<Key> = keys.iter().filter(line).copied().collect();
        for (key, id) in same[..2].iter().zip(7..) {
            front.put(*key, [id, 0, 0, 1]);
        }
        assert_eq!(front.get(same[0]), Some([7, 0, 0, 1]));
        front.put(same[2], [9, 0, 0, 1]);
        assert_eq!([same[0], same[1], same[2]].map(|key| front.get(key).map(|ids| ids[0])), [Some(7), None, Some(9)]);
    }

    #[test]
    fn memory_stays_below_its_bound() {
        let mut cache = Cache::new(1 << 20);
        for i in 0..200_000 {
            let (bytes, ids) = sample(i);
            cache.insert(Key::of(&bytes).unwrap(), &bytes, &ids);
        }
        assert!(cache.lines.len() * size_of::<Line>() + cache.ring.words.len() * 4 <= 1 << 20);
    }

    #[test]
    fn lengths_and_zero_bytes_are_told_apart() {
        let mut cache = Cache::new(1 << 20);
        cache.insert(Key::short(b"a\0", 0, 1), b"a", &[1]);
        cache.insert(Key::short(b"a\0", 0, 2), b"a\0", &[2]);
        assert_eq!((ids_of(&cache, b"a"), ids_of(&cache, b"a\0")), (Some(vec![1]), Some(vec![2])));
        assert_eq!(Key::short(b"xab and something more", 1, 2).key, Key::short(b"ab", 0, 2).key);
    }

    #[test]
    fn long_pretokens_with_one_hash_are_told_apart() {
        let mut cache = Cache::new(1 << 20);
        let (one, other) = ([b'a'; 20], [b'b'; 20]);
        let key = Key::long(&one).unwrap();
        cache.insert(key, &one, &[1, 2]);
        assert_eq!((cache.long(key, &one), cache.long(key, &other)), (Some(&[1, 2][..]), None));
    }

    #[test]
    fn an_entry_takes_half_a_line() {
        assert_eq!((size_of::<Entry>(), size_of::<Line>(), align_of::<Line>()), (32, 64, 64));
    }
}
