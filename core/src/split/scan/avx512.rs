//! Windows by AVX-512, for processors that have it (AMD since Zen 4, Intel's Xeons since Ice Lake).
//!
//! A question about 64 bytes takes one or two instructions. One more lists the positions of all set bits, which otherwise takes a
//! loop with an often mispredicted branch. Encoding English text with gpt2 was 1.2 times as fast, which is why unsafe code is
//! allowed here. The intrinsics used take no pointers.

use super::block::Block;
use super::window::{ASCII_MIN, Extent, Places, Rule, SEEN_BYTES, found, read_wide};
use crate::split::sink::PIECES_MAX;
use bytemuck::must_cast;
use std::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_alignr_epi64, _mm512_castsi512_si128, _mm512_cmpeq_epi8_mask,
    _mm512_cmple_epu8_mask, _mm512_cvtepu8_epi64, _mm512_maskz_compress_epi8, _mm512_or_si512, _mm512_set1_epi8,
    _mm512_set1_epi64, _mm512_sub_epi8, _mm512_test_epi8_mask,
};

/// Proof that the processor has the required features.
#[derive(Clone, Copy)]
pub struct Vectors(());

impl Vectors {
    #[inline(always)]
    pub fn of_processor() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        has_all.then_some(Self(()))
    }

    /// Appends the ends of pieces to the `n` present ones, until there are enough, a window decides nothing, or the text is about
    /// to end. Returns their new number, and where the last of them ends, or `at`.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub fn fill<R: Rule>(self, bytes: &[u8], at: usize, ends: &mut [usize; PIECES_MAX], n: usize) -> (usize, usize) {
        // SAFETY: `Vectors` exist only if the processor was found to have the features.
        unsafe { fill::<R>(bytes, at, ends, n) }
    }
}

struct Bytes(__m512i);

#[allow(unsafe_code)]
impl Block for Bytes {
    #[inline(always)]
    fn equal(&self, byte: u8) -> u64 {
        // SAFETY: `Bytes` are made only after the processor was found to have these features.
        unsafe { _mm512_cmpeq_epi8_mask(self.0, _mm512_set1_epi8(byte as i8)) }
    }

    #[inline(always)]
    fn between(&self, low: u8, high: u8) -> u64 {
        // SAFETY: `Bytes` are made only after the processor was found to have these features.
        unsafe {
            let above = _mm512_sub_epi8(self.0, _mm512_set1_epi8(low as i8));
            _mm512_cmple_epu8_mask(above, _mm512_set1_epi8((high - low) as i8))
        }
    }

    #[inline(always)]
    fn letters(&self) -> u64 {
        // SAFETY: `Bytes` are made only after the processor was found to have these features.
        Self(unsafe { _mm512_or_si512(self.0, _mm512_set1_epi8(0x20)) }).between(b'a', b'z')
    }

    #[inline(always)]
    fn bit(&self, k: u32) -> u64 {
        // SAFETY: `Bytes` are made only after the processor was found to have these features.
        unsafe { _mm512_test_epi8_mask(self.0, _mm512_set1_epi8((1_u8 << k) as i8)) }
    }
}

/// The numbers from 0 to 63.
const EACH: [u8; 64] = {
    let mut each = [0; 64];
    let mut i = 0;
    while i < 64 {
        each[i] = i as u8;
        i += 1;
    }
    each
};

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt")]
fn fill<R: Rule>(bytes: &[u8], mut at: usize, ends: &mut [usize; PIECES_MAX], mut n: usize) -> (usize, usize) {
    let mut places = Places::default();
    while n < PIECES_MAX / 2
        && let Some(seen) = bytes.get(at..).and_then(|rest| rest.first_chunk::<SEEN_BYTES>())
    {
        let (blocks, _) = seen.as_chunks::<64>();
        let block = Bytes(must_cast(blocks[0]));
        let first_wide = block.bit(7).trailing_zeros();
        let (mut starts, mut from, mut last) = (0, EACH, 0);
        if first_wide >= ASCII_MIN {
            let extent = Extent { n: first_wide, more: true };
            starts = found::<R>(&R::of_ascii(&block), extent, bytes, |bit| at + bit as usize, false).starts;
            last = starts.checked_ilog2().unwrap_or_default() as usize;
        }
        if starts == 0 {
            if first_wide == 64 {
                break;
            }
            let (flags, extent) = read_wide(R::TABLE, seen, SEEN_BYTES, &mut places);
            let classes = R::of_flags(&Bytes(must_cast(flags)));
            starts = found::<R>(&classes, extent, bytes, |bit| at + places.of(bit), true).starts;
            if starts == 0 {
                break;
            }
            (from, last) = (places.0, places.of(starts.ilog2()));
        }
        let n_found = starts.count_ones() as usize;
        let mut packed = _mm512_maskz_compress_epi8(starts, must_cast(from));
        let before = _mm512_set1_epi64(at as i64);
        // The last positions of a group of eight may be garbage, which is overwritten later.
        for eight in ends[n..].chunks_exact_mut(8).take(n_found.div_ceil(8)) {
            let sums = _mm512_add_epi64(before, _mm512_cvtepu8_epi64(_mm512_castsi512_si128(packed)));
            let sums: [usize; 8] = must_cast(sums);
            eight.copy_from_slice(&sums);
            packed = _mm512_alignr_epi64::<1>(packed, packed);
        }
        n += n_found;
        at += last;
    }
    (n, at)
}

#[cfg(test)]
mod tests {
    use super::super::block;
    use super::*;

    #[test]
    fn it_answers_as_the_other_forms_do() {
        #[target_feature(enable = "avx512f,avx512bw")]
        fn ask(bytes: [u8; 64]) {
            let (one, other) = (Bytes(must_cast(bytes)), block::Bytes::new(&bytes));
            for (low, high) in [(b'0', b'9'), (9, 13), (b'A', b'Z'), (0, 127), (b'!', b'~'), (b' ', b' ')] {
                assert_eq!(one.between(low, high), other.between(low, high));
            }
            assert_eq!((one.equal(b'/'), one.letters()), (other.equal(b'/'), other.letters()));
            (0..8).for_each(|k| assert_eq!(one.bit(k), other.bit(k)));
        }
        for shift in (0..=255_u8).filter(|_| Vectors::of_processor().is_some()) {
            let bytes = std::array::from_fn(|i| (i as u8).wrapping_mul(5).wrapping_add(shift));
            // SAFETY: the loop runs only if the processor has the features.
            #[allow(unsafe_code)]
            unsafe {
                ask(bytes);
            }
        }
    }
}
