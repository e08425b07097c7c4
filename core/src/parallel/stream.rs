//! Copying to memory past the caches.
//!
//! Unsafe because the instruction takes a pointer. What was copied as usual pushed out of the caches what the next pieces of a
//! batch need, and two threads encoded 0.97 times as fast.

/// Copies what is not read again soon. Both have the same length.
pub fn copy(from: &[u32], to: &mut [u32]) {
    assert_eq!(from.len(), to.len(), "a copy of another length");
    let n_before = to.as_ptr().align_offset(16).min(to.len());
    let ((from_before, from), (before, to)) = (from.split_at(n_before), to.split_at_mut(n_before));
    let ((from, from_rest), (to, rest)) = (from.as_chunks::<4>(), to.as_chunks_mut::<4>());
    before.copy_from_slice(from_before);
    from.iter().zip(to).for_each(|(words, place)| store(*words, place));
    rest.copy_from_slice(from_rest);
    fence();
}

/// `place` is aligned to its 16 bytes.
#[inline(always)]
#[allow(unsafe_code)]
fn store(words: [u32; 4], place: &mut [u32; 4]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_stream_si128};
        let place: *mut __m128i = std::ptr::from_mut(place).cast();
        debug_assert!(place.is_aligned());
        // SAFETY: SSE2 is part of x86-64; `place` is a reference's, and aligned; `fence` comes before another thread reads it.
        unsafe { _mm_stream_si128(place, bytemuck::must_cast(words)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        *place = words;
    }
}

/// Such stores are not ordered otherwise.
#[allow(unsafe_code)]
fn fence() {
    // SAFETY: SSE is part of x86-64.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_all_lengths_and_places_are_copied() {
        let from: Vec<u32> = (1..100).collect();
        for n in 0..40 {
            for (at, to_at) in (0..5).flat_map(|at| (0..5).map(move |to_at| (at, to_at))) {
                let mut to = [0; 50];
                copy(&from[at..at + n], &mut to[to_at..to_at + n]);
                let (before, copied) = to.split_at(to_at);
                assert!(copied.starts_with(&from[at..at + n]));
                assert!(before.iter().chain(&copied[n..]).all(|&word| word == 0));
            }
        }
    }
}
