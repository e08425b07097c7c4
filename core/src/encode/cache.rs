//! The cache of pre-token → ids, filled by all threads. For nearly every pre-token, one cache line answers.
//!
//! Invariant: it may forget a pre-token, but never mistakes one for another, whatever several threads do at once. Each entry is a
//! seqlock (Lameter, "Effective synchronization on Linux/NUMA systems", 2005). An entry is in the line of its hash or in the
//! adjacent line. If both are full, the older entry of the first line is evicted, so memory is bounded and eviction costs
//! nothing.
//! Cost: one multiplication and one line per look-up. A long pre-token, or one of more than three ids, reads a record as well.

use crate::memory::out_buffer::Tail;
use crate::memory::pages::Pages;
use crate::memory::prefetch::prefetch;
use crate::memory::records::Ring;
use bytemuck::{Zeroable, must_cast};
use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};

/// A pre-token of up to this many bytes is its own key.
pub const SHORT_BYTES_MAX: usize = 15;
/// Longer pre-tokens than this are not cached.
pub const LONG_BYTES_MAX: usize = 256;
const INLINE_IDS_MAX: usize = 3;
const LINES_MIN: usize = 1 << 10;
/// One in this many entries, chosen by hash, is counted.
const COUNTED: u64 = 8;
/// Marks a long pre-token, in the half of its key that has the length.
const LONG: u64 = 0x80 << 56;
/// The upper half of an entry's state. From the top: the number of ids in the entry (0 if they are in a record); whether it is
/// being written; and, from STATE_TURN on, how often it has been written.
const STATE_N_AT: u32 = 62;
const STATE_BUSY: u64 = 1 << 61;
const STATE_TURN: u64 = 1 << 32;

/// `key`: the bytes of a short pre-token, with its length in the top byte; for a long one, its hash, then LONG with its length.
/// `value`: the first two of up to three ids, or the place of a record (for more ids, and for a long key); then the third id and
/// the state, which is 0 if nothing has been written yet.
#[derive(Default, Zeroable)]
#[repr(C)]
struct Entry {
    key: [AtomicU64; 2],
    value: [AtomicU64; 2],
}

impl Entry {
    /// The value, if the entry belongs to `key`.
    #[inline(always)]
    fn value(&self, key: [u64; 2]) -> Option<[u64; 2]> {
        let state = self.value[1].load(Acquire);
        if self.key[1].load(Relaxed) != key[1] || self.key[0].load(Relaxed) != key[0] {
            return None;
        }
        let first = self.value[0].load(Relaxed);
        fence(Acquire);
        // With an unchanged state, everything read belongs to one write, because the next writer changes the state first.
        (self.value[1].load(Relaxed) == state).then_some([first, state])
    }

    /// The key and value, if the entry holds any.
    fn get(&self) -> Option<([u64; 2], [u64; 2])> {
        let key = [self.key[0].load(Acquire), self.key[1].load(Acquire)];
        self.value(key).filter(|[_, state]| *state != 0 && state & STATE_BUSY == 0).map(|value| (key, value))
    }

    fn is_free(&self) -> bool {
        self.value[1].load(Relaxed) == 0
    }

    /// Writes the entry, unless another thread is writing it.
    fn put(&self, key: [u64; 2], [first, second]: [u64; 2]) {
        let state = self.value[1].load(Relaxed);
        let turn = (state + STATE_TURN) & (STATE_BUSY - STATE_TURN);
        let busy = turn | STATE_BUSY;
        if state & STATE_BUSY != 0 || self.value[1].compare_exchange(state, busy, Acquire, Relaxed).is_err() {
            return;
        }
        fence(Release);
        self.key[0].store(key[0], Relaxed);
        self.key[1].store(key[1], Relaxed);
        self.value[0].store(first, Relaxed);
        self.value[1].store(second & !(2 * STATE_BUSY - STATE_TURN) | turn, Release);
    }
}

#[derive(Default, Zeroable)]
#[repr(C, align(64))]
struct Line([Entry; 2]);

/// A cache of pre-tokens in bounded memory.
pub struct Cache {
    /// Address space for as many lines as there may ever be. Only the first `n_lines` are used and take memory.
    lines: Pages<Line>,
    n_lines: usize,
    /// Roughly the number of entries added since the last growth.
    n_put: AtomicUsize,
    ring: Arc<Ring>,
    /// Whether all entries of the smaller cache that this one replaces have been copied.
    is_filled: AtomicBool,
}

impl Cache {
    /// An empty cache for about `n` pre-tokens, which may grow. Of `bytes_max`, up to half is for entries, a quarter for records,
    /// and a quarter for the smaller cache from which a larger one is filled.
    pub fn new(n: usize, bytes_max: usize) -> Self {
        let lines_max = 1 << (bytes_max / 2 / size_of::<Line>()).max(2).ilog2();
        let n_lines = (n / 2).next_power_of_two().max(LINES_MIN).min(lines_max);
        // Under `ulimit -v` there may be too little address space.
        let lines = Pages::try_new(lines_max).unwrap_or_else(|| Pages::new(n_lines));
        Self::of(lines, n_lines, Arc::new(Ring::new(bytes_max / 4 / size_of::<u32>())))
    }

    fn of(lines: Pages<Line>, n_lines: usize, ring: Arc<Ring>) -> Self {
        Self { lines, n_lines, n_put: AtomicUsize::new(0), ring, is_filled: AtomicBool::new(false) }
    }

    /// The lines, for the most frequent look-up.
    #[inline(always)]
    pub fn lines(&self) -> Lines<'_> {
        let lines = &self.lines[..self.n_lines];
        assert!(!lines.is_empty(), "a cache without lines"); // checked here, so that it is not checked for each pre-token
        Lines(lines)
    }

    /// Appends the ids of a pre-token if they are cached. Returns whether they are.
    pub fn extend(&self, key: Key, bytes: &[u8], ids: &mut Tail<u32>) -> bool {
        let [own, beside] = self.entries(key.hash);
        // While a line has room, none of its entries is in the adjacent line.
        let n_lines = if own[1].is_free() { 1 } else { 2 };
        let mut values = [own, beside].into_iter().take(n_lines).flatten().map(|entry| entry.value(key.halves()));
        match values.find_map(|value| value.filter(|[_, state]| *state != 0 && state & STATE_BUSY == 0)) {
            Some(value @ [record, _]) if n_ids(value) == 0 => self.ring.extend(record, key.not_held(bytes), ids),
            Some(value) => {
                ids.put(words(value), n_ids(value));
                true
            }
            None => false,
        }
    }

    /// The entries of the line of a hash, and of the adjacent line.
    fn entries(&self, hash: u64) -> [&[Entry; 2]; 2] {
        let at = self.line(hash);
        [&self.lines[at].0, &self.lines[at ^ 1].0]
    }

    fn line(&self, hash: u64) -> usize {
        hash as usize & (self.n_lines - 1)
    }

    /// Caches the ids of a pre-token. This may evict another one.
    pub fn insert(&self, key: Key, bytes: &[u8], ids: &[u32]) {
        let value = match *ids {
            [first, ref more @ ..] if !key.is_long() && ids.len() <= INLINE_IDS_MAX => {
                let more = |i: usize| u64::from(more.get(i).copied().unwrap_or_default());
                Some([u64::from(first) | more(0) << 32, more(1) | (ids.len() as u64) << STATE_N_AT])
            }
            _ => self.ring.push(key.not_held(bytes), ids).map(|record| [record, 0]),
        };
        value.into_iter().for_each(|value| self.put(key.hash, key.halves(), value));
    }

    fn put(&self, hash: u64, key: [u64; 2], value: [u64; 2]) {
        let [own, beside] = self.entries(hash);
        let same = |entry: &&Entry| entry.key.each_ref().map(|half| half.load(Relaxed)) == key;
        if let Some(place) = own.iter().chain(beside).find(|entry| entry.is_free() || same(entry)) {
            // Only one in COUNTED is counted: counting by all threads takes as long as writing an entry.
            if place.is_free() && (hash >> 32).is_multiple_of(COUNTED) {
                self.n_put.fetch_add(COUNTED as usize, Relaxed);
            }
            place.put(key, value);
        } else {
            own[0].get().into_iter().for_each(|(key, value)| own[1].put(key, value));
            own[0].put(key, value);
        }
    }

    /// Whether more lines would help and are allowed.
    ///
    /// This is so when it is a quarter full. With twice that, later passes over text were 0.8 to 0.96 times as fast.
    pub fn may_grow(&self) -> bool {
        self.n_lines < self.lines.len() && self.n_put.load(Relaxed) > self.n_lines / 2
    }

    /// Doubles the lines, in place.
    pub fn grow(&mut self) {
        let n_old = self.n_lines;
        self.n_lines = 2 * n_old;
        *self.n_put.get_mut() = 0;
        // Entries of a line and its adjacent line go back there, or as far after the old lines.
        for from in (0..n_old).step_by(2) {
            let both = [from, from + 1].map(|line| std::mem::take(&mut self.lines[line]));
            for entry in both.into_iter().flat_map(|Line(entries)| entries) {
                if entry.is_free() {
                    continue;
                }
                *self.n_put.get_mut() += 1;
                let at = self.line(hash_of_halves(entry.key.each_ref().map(|half| half.load(Relaxed))));
                let line = if self.lines[at].0[1].is_free() { at } else { at ^ 1 };
                let [first, second] = &mut self.lines[line].0;
                if first.is_free() {
                    *first = entry;
                } else if second.is_free() {
                    *second = entry;
                }
            }
        }
    }

    /// An empty cache with twice as many lines, which shares the ring of records. Without memory it is None, and is not tried
    /// again soon.
    pub fn larger(&self) -> Option<Self> {
        let n_lines = 2 * self.n_lines;
        let lines = Pages::try_new(self.lines.len()).or_else(|| Pages::try_new(n_lines));
        if lines.is_none() {
            self.n_put.store(0, Relaxed);
        }
        Some(Self::of(lines?, n_lines, self.ring.clone()))
    }

    /// Copies the entries of `smaller`, whose ring it shares.
    pub fn fill_from(&self, smaller: &Self) {
        smaller.lines[..smaller.n_lines].iter().for_each(|line| self.put_all_of(line));
        self.is_filled.store(true, Relaxed);
    }

    /// Whether all entries of the smaller cache have been copied.
    pub fn is_filled(&self) -> bool {
        self.is_filled.load(Relaxed)
    }

    fn put_all_of(&self, Line(entries): &Line) {
        for (key, value) in entries.iter().filter_map(Entry::get) {
            self.put(hash_of_halves(key), key, value);
        }
    }
}

/// The number of ids in a value; 0 if they are in a record.
#[inline(always)]
fn n_ids([_, state]: [u64; 2]) -> usize {
    (state >> STATE_N_AT) as usize
}

/// The ids at the beginning of a value, and the words after them.
#[inline(always)]
fn words([first, second]: [u64; 2]) -> [u32; 4] {
    [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32]
}

/// The lines of a cache.
#[derive(Clone, Copy)]
pub struct Lines<'c>(&'c [Line]);

impl Lines<'_> {
    /// Prefetches the line of a pre-token that will soon be looked up.
    #[inline(always)]
    pub fn prefetch(self, key: Key) {
        prefetch(&self.0[self.home(key)]);
    }

    #[inline(always)]
    fn home(self, key: Key) -> usize {
        key.hash as usize & (self.0.len() - 1)
    }

    /// The ids of a pre-token, at the beginning of four words, and their number, if they are in its line.
    #[inline(always)]
    pub fn few(self, key: Key) -> Option<([u32; 4], usize)> {
        let Line(entries) = &self.0[self.home(key)];
        // Chosen by half of the key, to avoid a branch that is often mispredicted. If that is wrong, `extend` finds the entry.
        let is_second = entries[0].key[0].load(Relaxed) != key.halves()[0];
        let value = entries[usize::from(is_second)].value(key.halves())?;
        let n = n_ids(value);
        (n != 0).then(|| (words(value), n))
    }
}

/// The key and hash of a pre-token.
#[derive(Clone, Copy, Default)]
pub struct Key {
    /// A u128 with the alignment of u64, so that a key with its place takes 32 bytes.
    bits: [u64; 2],
    hash: u64,
}

impl Key {
    #[inline(always)]
    fn bits(self) -> u128 {
        must_cast(self.bits)
    }

    /// The lower half of the key, and the half with the length.
    #[inline(always)]
    fn halves(self) -> [u64; 2] {
        [self.bits() as u64, (self.bits() >> 64) as u64]
    }

    #[inline(always)]
    fn is_long(self) -> bool {
        self.halves()[1] & LONG != 0
    }

    /// The bytes and their number, if all of them are in the key.
    #[inline(always)]
    pub fn bytes(self) -> Option<[u64; 2]> {
        (!self.is_long()).then_some(self.bits)
    }

    /// The bytes of the pre-token, `bytes`, if the key does not hold them; else none.
    fn not_held(self, bytes: &[u8]) -> &[u8] {
        if self.is_long() { bytes } else { &[] }
    }

    /// The number of bytes of the pre-token.
    #[inline(always)]
    pub fn n_bytes(self) -> usize {
        let [_, high] = self.halves();
        if self.is_long() { high as usize & 0xffff } else { (high >> 56) as usize }
    }

    /// The key of a short pre-token: the first `n` of these bytes, at most SHORT_BYTES_MAX.
    #[inline(always)]
    pub fn short(bytes: [u8; 16], n: usize) -> Self {
        let [mask, length] = CUTS[n & 15];
        let key = u128::from_le_bytes(bytes) & mask | length;
        Self { bits: must_cast(key), hash: hash_of(key) }
    }

    /// The key of a longer pre-token, of at most LONG_BYTES_MAX.
    #[inline(never)]
    pub fn long(bytes: &[u8]) -> Self {
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        let key = u128::from(LONG | bytes.len() as u64) << 64 | u128::from(hasher.finish());
        Self { bits: must_cast(key), hash: hash_of(key) }
    }

    /// The key of any pre-token; None if it is too long to be cached.
    ///
    /// Not inlined: inside the loop over short pre-tokens it took registers from it, and encoding was 0.95 times as fast.
    #[inline(never)]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes.len() {
            n @ ..=SHORT_BYTES_MAX => Some(Self::short(padded(bytes), n)),
            n => (n <= LONG_BYTES_MAX).then(|| Self::long(bytes)),
        }
    }
}

/// For each n: the bits of the first n bytes, and n in the last byte.
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

fn hash_of_halves([low, high]: [u64; 2]) -> u64 {
    hash_of(u128::from(low) | u128::from(high) << 64)
}

/// The exclusive or of both halves of the product of the key's halves.
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

    fn insert(cache: &Cache, bytes: &[u8], ids: &[u32]) {
        cache.insert(Key::of(bytes).unwrap(), bytes, ids);
    }

    /// Pre-tokens of all lengths, with ids that follow from them.
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
    fn what_is_remembered_is_right_whatever_is_forgotten() {
        for bytes_max in [0, 1000, 100_000, 1 << 22] {
            let mut cache = Cache::new(0, bytes_max);
            let mut n_known = 0;
            for i in 0..20_000 {
                let (bytes, ids) = sample(i);
                insert(&cache, &bytes, &ids);
                if cache.may_grow() {
                    cache.grow();
                }
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
    fn one_that_grew_has_what_was_remembered() {
        let mut cache = Cache::new(0, 1 << 26);
        for (bytes, ids) in (0..600).map(sample) {
            insert(&cache, &bytes, &ids);
        }
        assert!(cache.may_grow());
        let larger = cache.larger().unwrap();
        larger.fill_from(&cache);
        assert!(larger.is_filled() && !cache.is_filled());
        cache.grow();
        for cache in [cache, larger] {
            assert_eq!(cache.n_lines, 2 * LINES_MIN);
            assert!(n_known(&cache, 600) > 585);
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
        assert_eq!(cache.n_lines, cache.lines.len());
        // While it grows and others read it, the smaller cache, with half as many lines, exists beside these.
        assert!(cache.lines.len() * size_of::<Line>() / 2 * 3 + cache.ring.n_bytes() <= 1 << 20);
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

    /// Uses a cache of four lines and few records, so that each is overwritten again and again while other threads read.
    #[test]
    fn threads_that_write_and_read_at_once_see_whole_entries() {
        for bytes_max in [600, 1 << 20] {
            let cache = Cache::new(0, bytes_max);
            let work = |thread: u32| {
                let rounds = (0..60_000_u32).map(|i| i.wrapping_mul(2 * thread + 1) % 300);
                let mut n_known = 0;
                for (bytes, ids) in rounds.map(sample) {
                    insert(&cache, &bytes, &ids);
                    for earlier in [bytes, sample(thread).0] {
                        let known = ids_of(&cache, &earlier);
                        n_known += usize::from(known.is_some());
                        let last = &earlier[earlier.len() - 4..];
                        let own = sample(u32::from_le_bytes(last.try_into().unwrap()));
                        assert!(known.is_none_or(|known| known == own.1), "{own:?}");
                    }
                }
                n_known
            };
            let n_known: usize = std::thread::scope(|scope| {
                let threads = [0, 1, 2, 3].map(|thread| scope.spawn(move || work(thread)));
                threads.map(|thread| thread.join().unwrap()).iter().sum()
            });
            assert!(n_known > 60_000, "{n_known}");
        }
    }

    #[test]
    fn an_entry_takes_half_a_line() {
        assert_eq!((size_of::<Entry>(), size_of::<Line>(), align_of::<Line>()), (32, 64, 64));
    }
}
