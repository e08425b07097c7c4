//! 64 bytes at once, each question about them answered by 64 bits.
//!
//! Invariant: bit i of an answer is about byte i. Cost: about seventy instructions a question, in words of eight bytes.

pub struct Block([u64; 8]);

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES << 7;

impl Block {
    #[inline(always)]
    pub fn new(bytes: &[u8; 64]) -> Self {
        let (parts, _) = bytes.as_chunks::<8>();
        Self([0, 1, 2, 3, 4, 5, 6, 7].map(|i| u64::from_le_bytes(parts[i])))
    }

    /// `question` answers in the high bit of each byte; the product gathers the eight bits in its top byte.
    #[inline(always)]
    fn ask(&self, question: impl Fn(u64) -> u64) -> u64 {
        self.0.iter().rev().fold(0, |answer, word| {
            answer << 8 | ((question(*word) & HIGH) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
        })
    }

    #[inline(always)]
    pub fn equal(&self, byte: u8) -> u64 {
        self.between(byte, byte)
    }

    #[inline(always)]
    pub fn between(&self, low: u8, high: u8) -> u64 {
        debug_assert!(low <= high && high < 128);
        // On seven bits a sum cannot carry into the next byte: it reaches the high bit from `low` on, and past `high`.
        self.ask(|word| {
            let seven = word & !HIGH;
            let from_low = seven + ONES * u64::from(128 - low);
            let past_high = seven + ONES * u64::from(127 - high);
            from_low & !past_high & !word
        })
    }

    #[inline(always)]
    pub fn letters(&self) -> u64 {
        Self(self.0.map(|word| word | ONES << 5)).between(b'a', b'z')
    }

    #[inline(always)]
    pub fn bit(&self, k: u32) -> u64 {
        self.ask(|word| word << (7 - k))
    }
}
