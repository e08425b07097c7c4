//! Hashes of text, seeded with random numbers of this process. So nobody can choose texts that collide (hash flooding).
//!
//! Invariant: no result of the core depends on a hash or on the order of a table. Cost: a multiplication for each 8 bytes.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

static OF_PROCESS: LazyLock<Seed> = LazyLock::new(|| {
    // The standard library takes the seeds of its own tables from the system.
    let [start, factor] = [0, 1].map(|n: u64| RandomState::new().hash_one(n));
    Seed { start, factor: factor | 1 }
});

/// The random numbers that hashes are seeded with.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    start: u64,
    factor: u64,
}

impl Default for Seed {
    /// The seed of this process.
    fn default() -> Self {
        *OF_PROCESS
    }
}

impl Seed {
    /// The hash of 16 bytes.
    #[inline]
    pub fn hash_short(self, key: u128) -> u64 {
        fold(key as u64 ^ self.start, (key >> 64) as u64 ^ self.factor)
    }

    /// The hash of any number of bytes.
    pub fn hash_long(self, bytes: &[u8]) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write(bytes);
        hasher.finish()
    }
}

/// Hashes bytes in words of 8.
#[derive(Clone, Copy, Debug)]
pub struct SeededHasher {
    state: u64,
    factor: u64,
}

/// So that a `HashMap` whose keys are text can have `Seed` as its hasher.
impl BuildHasher for Seed {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher { state: self.start, factor: self.factor }
    }
}

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        self.state = self.state.wrapping_add(bytes.len() as u64);
        chunks.iter().for_each(|chunk| self.write_u64(u64::from_le_bytes(*chunk)));
        if !rest.is_empty() {
            self.write_u64(word(rest));
        }
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.factor).rotate_left(23);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

/// The first 8 bytes as a number; missing bytes are zeros.
#[inline]
pub fn word(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    if let Some(first) = bytes.first_chunk::<8>() {
        u64::from_le_bytes(*first)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (length - 4))
    } else if let [first, .., last] = bytes {
        let middle = bytes[length / 2];
        u64::from(*first) | u64::from(middle) << (8 * (length / 2)) | u64::from(*last) << (8 * (length - 1))
    } else {
        bytes.first().map_or(0, |&byte| u64::from(byte))
    }
}

/// The exclusive or of both halves of the product, so that each bit of the result depends on all bits of both factors.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn hashes_of_texts_that_differ_little_are_spread() {
        let seed = Seed::default();
        let long: HashSet<u64> =
            (0..20_000).map(|n| seed.hash_long(format!("a text with a {n}").as_bytes()) >> 32).collect();
        let short: HashSet<u64> = (0..20_000).map(|n| seed.hash_short(n << 64 | n << 3) >> 32).collect();
        let ends: HashSet<u64> = (0..100).map(|n| seed.hash_long(&vec![0; n])).collect();
        assert!(long.len() > 19_950 && short.len() > 19_950, "{} {}", long.len(), short.len());
        assert_eq!(ends.len(), 100);
    }

    #[test]
    fn texts_that_collide_under_one_seed_are_spread_under_another() {
        let (known, other) = (Seed { start: 1, factor: 0x9e37_79b9_7f4a_7c15 }, Seed::default());
        let short = |seed: Seed, n: u64| seed.hash_short(u128::from(n) << 24 | 11 << 120) >> 54;
        let long = |seed: Seed, n: u64| seed.hash_long(format!("a longer text, {n}").as_bytes()) >> 54;
        for hash in [short, long] {
            let chosen: Vec<u64> = (0..400_000).filter(|&n| hash(known, n) == 7).collect();
            let spread: HashSet<u64> = chosen.iter().map(|&n| hash(other, n)).collect();
            assert!(chosen.len() > 300 && spread.len() > 200, "{} {}", chosen.len(), spread.len());
        }
    }
}
