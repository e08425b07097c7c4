//! Pre-token → ids, for pre-tokens that were met before, by any thread: one cache line answers for nearly every one.
//!
//! Invariant: it may forget, and never takes one pre-token for another, whatever several threads do at once. What is written
//! stays: who writes an entry takes its place (compare and exchange), and tells its key last (release), so that who reads the
//! key (acquire) reads the whole entry. It stands in the line that its hash names or in one of those beside it; where all are full
//! a pre-token is not remembered.
//! Cost: one multiplication and one line a look-up; a long pre-token, and one of more than three ids, reads a record as well.

use crate::pages::Pages;
use crate::prefetch::prefetch;
use crate::tail::Tail;
use bytemuck::{Zeroable, must_cast};
use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Pre-tokens up to this many bytes are their own key.
pub const SHORT_BYTES_MAX: usize = 15;
/// Longer pre-tokens than this are not kept.
pub const LONG_BYTES_MAX: usize = 256;
const INLINE_IDS_MAX: u32 = 3;
const LINES_MIN: usize = 1 << 10;
/// Lines beside each other: an entry stands in one of them, in the first that had room.
const BESIDE: usize = 8;
/// Of keys, the half with the length.
const LONG: u64 = 0x80 << 56;
/// In the key of an entry whose ids are in a record: who looks for few ids does not find it.
const MANY: u64 = 0x40 << 56;
/// Instead of a key, while its entry is written.
const TAKEN: u64 = 0x20 << 56;
/// In the place of the number of ids: they are in a record.
const IN_RECORD: u32 = 1 << 31;

/// `key`: the bytes of a short pre-token, its length in the top byte; for a long one its hash, and LONG and its length; with
/// MANY where the ids are IN_RECORD; 0: no entry. `value`: up to three ids, their number last; or for more, and for a long key,
/// where their record is.
#[derive(Default, Zeroable)]
#[repr(C)]
struct Entry {
    key: [AtomicU64; 2],
    value: [AtomicU64; 2],
}

impl Entry {
    #[inline(always)]
    fn has(&self, [low, high]: [u64; 2]) -> bool {
        (self.key[1].load(Acquire) == high) & (self.key[0].load(Relaxed) == low)
    }

    #[inline(always)]
    fn value(&self) -> [u32; 4] {
        must_cast([self.value[0].load(Relaxed), self.value[1].load(Relaxed)])
    }

    /// Key and value, if the entry is there.
    fn get(&self) -> Option<([u64; 2], [u32; 4])> {
        let high = self.key[1].load(Acquire);
        (high != 0 && high != TAKEN).then(|| ([self.key[0].load(Relaxed), high], self.value()))
    }

    fn is_taken(&self) -> bool {
        self.key[1].load(Relaxed) != 0
    }

    /// Writes the entry, if its place is free.
    fn put(&self, [low, high]: [u64; 2], value: [u32; 4]) -> bool {
        let free = self.key[1].compare_exchange(0, TAKEN, Relaxed, Relaxed).is_ok();
        if free {
            let value: [u64; 2] = must_cast(value);
            self.key[0].store(low, Relaxed);
            self.value[0].store(value[0], Relaxed);
            self.value[1].store(value[1], Relaxed);
            self.key[1].store(high, Release);
        }
        free
    }
}

#[derive(Default, Zeroable)]
#[repr(C, align(64))]
struct Line([Entry; 2]);

/// A bounded memory of pre-tokens.
pub struct Cache {
    /// Addresses for as many as there may ever be; only the first `n_lines` are used, and take memory.
    lines: Pages<Line>,
    n_lines: usize,
    /// Entries that were put, or found no room, since the lines became as many as they are.
    n_put: AtomicUsize,
    records: Arc<Records>,
}

impl Cache {
    /// An empty one for some `n` pre-tokens that may grow: up to a quarter of `bytes_max` for entries, an eighth for records.
    pub fn new(n: usize, bytes_max: usize) -> Self {
        let lines_max = 1 << (bytes_max / 4 / size_of::<Line>()).max(LINES_MIN).ilog2();
        let n_lines = (n / 2).next_power_of_two().max(LINES_MIN).min(lines_max);
        let lines = Pages::try_new(lines_max).unwrap_or_else(|| Pages::new(n_lines));
        Self::of(lines, n_lines, Arc::new(Records::new(bytes_max / 8 / size_of::<u32>())))
    }

    fn of(lines: Pages<Line>, n_lines: usize, records: Arc<Records>) -> Self {
        Self { lines, n_lines, n_put: AtomicUsize::new(0), records }
    }

    /// What is asked for most.
    #[inline(always)]
    pub fn lines(&self) -> Lines<'_> {
        let lines = &self.lines[..self.n_lines];
        assert!(!lines.is_empty(), "a cache without lines"); // asked here, it is not asked for each pre-token
        Lines(lines)
    }

    /// Appends the ids of a pre-token, if they are remembered; whether they are.
    pub fn extend(&self, key: Key, bytes: &[u8], ids: &mut Tail<u32>) -> bool {
        let Some(value) = self.value(key) else { return false };
        if value[3] & IN_RECORD != 0 {
            return self.records.extend(value, key.not_held(bytes), ids);
        }
        ids.put(value, value[3] as usize);
        true
    }

    fn value(&self, key: Key) -> Option<[u32; 4]> {
        let [low, high] = key.halves();
        let own = |entry: &&Entry| entry.has([low, high]) || entry.has([low, high | MANY]);
        for Line(entries) in self.beside(key.hash) {
            if let Some(entry) = entries.iter().find(own) {
                return Some(entry.value());
            }
            if !entries[1].is_taken() {
                break;
            }
        }
        None
    }

    /// The lines in which an entry may stand, in order.
    fn beside(&self, hash: u64) -> impl Iterator<Item = &Line> {
        let at = self.home(hash);
        (0..BESIDE).map(move |i| &self.lines[at ^ i])
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.n_lines - 1)
    }

    /// Remembers the ids of a pre-token, if there is room; false where there is too little for more to come.
    pub fn insert(&self, key: Key, bytes: &[u8], ids: &[u32]) -> bool {
        let [low, high] = key.halves();
        let value = match *ids {
            [one] if !key.is_long() => Some([one, 0, 0, 1]),
            [one, two] if !key.is_long() => Some([one, two, 0, 2]),
            [one, two, three] if !key.is_long() => Some([one, two, three, INLINE_IDS_MAX]),
            _ => self.records.push(key.not_held(bytes), ids),
        };
        if let Some(value) = value {
            let many = if value[3] & IN_RECORD == 0 { 0 } else { MANY };
            self.put(key.hash, [low, high | many], value);
        }
        !self.is_full() && !self.may_grow()
    }

    fn put(&self, hash: u64, key: [u64; 2], value: [u32; 4]) {
        for entry in self.beside(hash).flat_map(|Line(entries)| entries) {
            if entry.has(key) {
                return;
            }
            if entry.put(key, value) {
                break;
            }
        }
        self.n_put.fetch_add(1, Relaxed);
    }

    /// Whether it would serve better with more lines, and may have them.
    ///
    /// A quarter full: at twice that, later passes over text were 0.8 to 0.96 times as fast.
    pub fn may_grow(&self) -> bool {
        self.n_lines < self.lines.len() && self.n_put.load(Relaxed) > self.n_lines / 2
    }

    /// Whether there is too little room for what comes: it is half full.
    pub fn is_full(&self) -> bool {
        self.records.is_full() || self.n_put.load(Relaxed) > self.n_lines
    }

    /// Twice as many lines, in their place.
    pub fn grow(&mut self) {
        let n_old = self.n_lines;
        self.n_lines = 2 * n_old;
        *self.n_put.get_mut() = 0;
        // What is in lines beside each other goes there again, or as far behind the lines there were.
        for from in (0..n_old).step_by(BESIDE) {
            let all: [Line; BESIDE] = std::array::from_fn(|i| std::mem::take(&mut self.lines[from + i]));
            all.iter().for_each(|line| self.put_all_of(line));
        }
    }

    /// An empty one with twice as many lines, which shares the records.
    pub fn larger(&self) -> Self {
        let n_lines = 2 * self.n_lines;
        let lines = Pages::try_new(self.lines.len()).unwrap_or_else(|| Pages::new(n_lines));
        Self::of(lines, n_lines, self.records.clone())
    }

    /// Remembers what `other` does, whose records it shares.
    pub fn add_all_of(&self, other: &Self) {
        other.lines[..other.n_lines].iter().for_each(|line| self.put_all_of(line));
    }

    fn put_all_of(&self, Line(entries): &Line) {
        for (key, value) in entries.iter().filter_map(Entry::get) {
            let [low, high] = key;
            self.put(hash_of(u128::from(low) | u128::from(high & !MANY) << 64), key, value);
        }
    }
}

/// The lines of a cache.
#[derive(Clone, Copy)]
pub struct Lines<'c>(&'c [Line]);

impl Lines<'_> {
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
    pub fn few(self, key: Key) -> Option<[u32; 4]> {
        let Line(entries) = &self.0[self.home(key)];
        // By half a key, and without a branch that may be guessed wrong; where it is not that one, `value` finds the other.
        let is_second = entries[0].key[0].load(Relaxed) != key.halves()[0];
        let entry = &entries[usize::from(is_second)];
        entry.has(key.halves()).then(|| entry.value())
    }
}

/// Records of ids, and of the bytes they are for when the key does not hold these.
struct Records {
    words: Pages<AtomicU32>,
    /// Words that were asked for: more than there are, when it is full.
    n: AtomicUsize,
}

impl Records {
    /// None yet, and room for `n_max` words.
    fn new(n_max: usize) -> Self {
        Self { words: Pages::try_new(n_max).unwrap_or_else(|| Pages::new(0)), n: AtomicUsize::new(0) }
    }

    fn is_full(&self) -> bool {
        self.n.load(Relaxed) > self.words.len()
    }

    fn push(&self, bytes: &[u8], ids: &[u32]) -> Option<[u32; 4]> {
        let n_words = bytes.len().div_ceil(4) + ids.len();
        if n_words > self.words.len() / 2 {
            return None; // though nothing else were there
        }
        let at = self.n.fetch_add(n_words, Relaxed);
        let places = self.words.get(at..at + n_words)?;
        let words = bytes.chunks(4).map(word).chain(ids.iter().copied());
        places.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
        Some([at as u32, (at as u64 >> 32) as u32, 0, ids.len() as u32 | IN_RECORD])
    }

    /// Appends the ids of a record, if it is for `bytes`.
    fn extend(&self, value: [u32; 4], bytes: &[u8], ids: &mut Tail<u32>) -> bool {
        let (at, n) = ((u64::from(value[0]) | u64::from(value[1]) << 32) as usize, (value[3] & !IN_RECORD) as usize);
        let ids_at = at + bytes.len().div_ceil(4);
        let same = self.words[at..ids_at].iter().map(|one| one.load(Relaxed)).eq(bytes.chunks(4).map(word));
        if same {
            let from = &self.words[ids_at..ids_at + n];
            ids.room(n).iter_mut().zip(from).for_each(|(place, id)| *place = id.load(Relaxed));
            ids.add(n);
        }
        same
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

    /// The lower half, and that with the length.
    #[inline(always)]
    fn halves(self) -> [u64; 2] {
        [self.bits() as u64, (self.bits() >> 64) as u64]
    }

    #[inline(always)]
    fn is_long(self) -> bool {
        self.halves()[1] & LONG != 0
    }

    /// The bytes and their number, if they are few enough to be in the key.
    #[inline(always)]
    pub fn bytes(self) -> Option<[u64; 2]> {
        (!self.is_long()).then_some(self.bits)
    }

    /// Those of `bytes`, the pre-token's, that the key does not hold.
    fn not_held(self, bytes: &[u8]) -> &[u8] {
        if self.is_long() { bytes } else { &[] }
    }

    /// How many bytes the pre-token has.
    #[inline(always)]
    pub fn n_bytes(self) -> usize {
        let [_, high] = self.halves();
        if self.is_long() { high as usize & 0xffff } else { (high >> 56) as usize }
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
        let key = u128::from(LONG | bytes.len() as u64) << 64 | u128::from(hasher.finish());
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
        let mut ids = Tail::default();
        cache.extend(Key::of(bytes)?, bytes, &mut ids).then(|| ids.take())
    }

    fn insert(cache: &Cache, bytes: &[u8], ids: &[u32]) -> bool {
        cache.insert(Key::of(bytes).unwrap(), bytes, ids)
    }

    /// Pre-tokens of all lengths and ids that follow from them.
    fn sample(i: u32) -> (Vec<u8>, Vec<u32>) {
        let bytes: Vec<u8> =
            (0..1 + i % 40).map(|k| (i.wrapping_mul(k + 7) >> 3) as u8).chain(i.to_le_bytes()).collect();
        let ids = (0..1 + i % 7).map(|k| i ^ k).collect();
        (bytes, ids)
    }

    fn n_known(cache: &Cache, n: u32) -> usize {
        let known = (0..n).map(sample).filter_map(|(bytes, ids)| Some((ids_of(cache, &bytes)?, ids)));
        known.map(|(found, ids)| assert_eq!(found, ids)).count()
    }

    #[test]
    fn what_is_remembered_is_right_whatever_there_is_room_for() {
        for (bytes_max, n_known_min) in [(0, 100), (100_000, 500), (1 << 24, 19_800)] {
            let mut cache = Cache::new(0, bytes_max);
            for (bytes, ids) in (0..20_000).map(sample) {
                if !insert(&cache, &bytes, &ids) && cache.may_grow() {
                    cache.grow();
                }
            }
            let n = n_known(&cache, 20_000);
            assert!(n >= n_known_min, "{bytes_max}: {n}");
            assert_eq!(cache.is_full(), bytes_max < 1 << 24);
        }
    }

    #[test]
    fn one_that_grew_has_what_was_remembered() {
        let mut cache = Cache::new(0, 1 << 26);
        (0..1000).map(sample).for_each(|(bytes, ids)| assert_eq!(!insert(&cache, &bytes, &ids), cache.may_grow()));
        let larger = cache.larger();
        larger.add_all_of(&cache);
        cache.grow();
        for cache in [cache, larger] {
            assert_eq!(cache.n_lines, 2 * LINES_MIN);
            assert!(n_known(&cache, 1000) > 990);
        }
    }

    #[test]
    fn memory_stays_below_its_bound() {
        let mut cache = Cache::new(0, 1 << 20);
        for (bytes, ids) in (0..200_000).map(sample) {
            insert(&cache, &bytes, &ids);
            if cache.may_grow() {
                cache.grow();
            }
        }
        assert!(cache.lines.len() * size_of::<Line>() + cache.records.words.len() * 4 <= 3 << 17);
        assert_eq!(cache.n_lines, cache.lines.len());
    }

    #[test]
    fn lengths_and_zero_bytes_are_told_apart() {
        let cache = Cache::new(0, 1 << 20);
        insert(&cache, b"a", &[1]);
        insert(&cache, b"a\0", &[2]);
        assert_eq!((ids_of(&cache, b"a"), ids_of(&cache, b"a\0")), (Some(vec![1]), Some(vec![2])));
        assert_eq!(Key::short(*b"ab and something", 2).bits(), Key::of(b"ab").unwrap().bits());
    }

    #[test]
    fn long_pretokens_with_one_hash_are_told_apart() {
        let cache = Cache::new(0, 1 << 20);
        let (one, other) = ([b'a'; 20], [b'b'; 20]);
        let (key, mut ids) = (Key::long(&one), Tail::default());
        cache.insert(key, &one, &[1, 2]);
        assert!(!cache.extend(key, &other, &mut ids) && cache.extend(key, &one, &mut ids));
        assert_eq!(ids.take(), [1, 2]);
    }

    #[test]
    fn threads_that_write_and_read_at_once_see_whole_entries() {
        let cache = Cache::new(0, 1 << 24);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for i in 0..20_000_u32 {
                        let (bytes, ids) = sample(i.wrapping_mul(2 * thread + 1) % 1500);
                        if let Some(found) = ids_of(cache, &bytes) {
                            assert_eq!(found, ids);
                        }
                        insert(cache, &bytes, &ids);
                    }
                });
            }
        });
        assert!(n_known(&cache, 1500) > 1400);
    }

    #[test]
    fn an_entry_takes_half_a_line() {
        assert_eq!((size_of::<Entry>(), size_of::<Line>(), align_of::<Line>()), (32, 64, 64));
    }
}
