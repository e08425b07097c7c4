//! Memory in pages of 2 MB, if the system has them, for a table with random access or for output that several threads write. With
//! pages of 4 kB, translating an address can take longer than reading the value.
//!
//! Unsafe because system memory is viewed as values (also as atomic integers that several threads change), and because parts of
//! it are split off and joined again. No collection of the standard library asks for large pages. First passes over code took 93
//! to 97 ms without them and 68 to 77 with them.

use bytemuck::Zeroable;
use memmap2::{MmapOptions, MmapRaw};
use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A fixed number of values, which are zero until they are written.
pub struct Pages<T> {
    start: *mut T,
    n: usize,
    /// Keeps the mapping alive, which other parts may share.
    memory: Arc<MmapRaw>,
}

// SAFETY: each `Pages` has exclusive access to its values: no two overlap.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Pages<T> {}
// SAFETY: a shared `Pages` gives only `&[T]`.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Sync for Pages<T> {}

impl<T: Zeroable> Pages<T> {
    const FITS: () = assert!(align_of::<T>() <= 4096 && !std::mem::needs_drop::<T>());

    /// `n` values. Ends the process if there is no memory, as a vector does.
    pub fn new(n: usize) -> Self {
        Self::try_new(n).unwrap_or_else(|| handle_alloc_error(Layout::array::<T>(n).unwrap_or(Layout::new::<T>())))
    }

    /// `n` values. Values that are never written take only address space. None if there is not enough address space.
    pub fn try_new(n: usize) -> Option<Self> {
        let () = Self::FITS;
        let bytes = MmapOptions::new().len(n.checked_mul(size_of::<T>())?).no_reserve_swap().map_anon().ok()?;
        #[cfg(target_os = "linux")]
        bytes.advise(memmap2::Advice::HugePage).unwrap_or_default(); // without large pages, the small ones are used
        let memory = MmapRaw::from(bytes);
        Some(Self { start: memory.as_mut_ptr().cast(), n, memory: Arc::new(memory) })
    }

    /// Splits off the first `n` values.
    pub fn split_to(&mut self, n: usize) -> Self {
        let start = self.start;
        self.start = std::ptr::from_mut(&mut self[n..]).cast();
        self.n -= n;
        Self { start, n, memory: self.memory.clone() }
    }

    /// These values joined with all that were split off; None while others still hold some of them.
    pub fn joined(mut self) -> Option<Self> {
        let memory = Arc::get_mut(&mut self.memory)?;
        (self.start, self.n) = (memory.as_mut_ptr().cast(), memory.len() / size_of::<T>());
        Some(self)
    }
}

#[allow(unsafe_code)]
impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `try_new` mapped at least n values from there on, as zeros, which are valid for every T. A page is aligned for
        // them. All access is through this reference or the one below.
        unsafe { std::slice::from_raw_parts(self.start, self.n) }
    }
}

#[allow(unsafe_code)]
impl<T> DerefMut for Pages<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn values_begin_as_zeros_and_stay_as_written() {
        let mut pages: Pages<u64> = Pages::new(300_000);
        assert!(pages.len() == 300_000 && pages.iter().all(|&one| one == 0));
        pages.iter_mut().zip(0..).for_each(|(place, i)| *place = i);
        assert!(pages.iter().copied().eq(0..300_000));
        assert!(Pages::<u64>::try_new(usize::MAX >> 4).is_none());
        assert!(Pages::<u64>::new(0).is_empty());
    }

    #[test]
    fn parts_are_kept_apart_and_joined_when_all_others_are_gone() {
        let mut rest: Pages<u64> = Pages::new(10);
        let (mut first, empty) = (rest.split_to(3), rest.split_to(0));
        first.fill(1);
        rest.fill(2);
        assert_eq!((&*first, &*empty, &*rest), (&[1; 3][..], &[][..], &[2; 7][..]));
        let second = rest.split_to(7);
        assert!(rest.is_empty() && second.joined().is_none());
        drop((first, empty));
        assert!(rest.joined().is_some_and(|all| *all == [1, 1, 1, 2, 2, 2, 2, 2, 2, 2]));
        let beyond = || Pages::<u64>::new(10).split_to(11);
        assert!(std::panic::catch_unwind(beyond).is_err());
    }

    #[test]
    fn several_threads_may_change_atomic_values() {
        let pages: Pages<AtomicU32> = Pages::new(1000);
        let add = || pages.iter().for_each(|one| _ = one.fetch_add(1, Ordering::Relaxed));
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(add)));
        assert!(pages.iter().all(|one| one.load(Ordering::Relaxed) == 4));
    }
}
