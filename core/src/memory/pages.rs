//! A table that is read here and there, or room for what several threads write, in pages of 2 MB where the system has some:
//! with pages of 4 kB the look-up of an address can take longer than that of the value.
//!
//! Unsafe because memory of the system is seen as values, of atomic integers too, which several threads may change, and because
//! parts of it are taken off and joined again. No list of the standard library asks for large pages; first passes over code took 93 to 97 ms without them instead of 68 to 77.

use bytemuck::Zeroable;
use memmap2::{MmapOptions, MmapRaw};
use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A fixed number of values, which are zeros until they are written.
pub struct Pages<T> {
    start: *mut T,
    n: usize,
    /// What keeps them, and other parts of it.
    memory: Arc<MmapRaw>,
}

// SAFETY: the values are reached by this alone: no two have a part in common.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Pages<T> {}
// SAFETY: shared, it gives `&[T]` alone.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Sync for Pages<T> {}

impl<T: Zeroable> Pages<T> {
    const FITS: () = assert!(align_of::<T>() <= 4096 && !std::mem::needs_drop::<T>());

    /// `n` values. Ends the process when there is no memory, as a vector does.
    pub fn new(n: usize) -> Self {
        Self::try_new(n).unwrap_or_else(|| handle_alloc_error(Layout::array::<T>(n).unwrap_or(Layout::new::<T>())))
    }

    /// `n` values; of those that are never written to, only addresses are taken. None where there are too few.
    pub fn try_new(n: usize) -> Option<Self> {
        let () = Self::FITS;
        let bytes = MmapOptions::new().len(n.checked_mul(size_of::<T>())?).no_reserve_swap().map_anon().ok()?;
        #[cfg(target_os = "linux")]
        bytes.advise(memmap2::Advice::HugePage).unwrap_or_default(); // a system without them keeps its small ones
        let memory = MmapRaw::from(bytes);
        Some(Self { start: memory.as_mut_ptr().cast(), n, memory: Arc::new(memory) })
    }

    /// Takes the first `n` values off.
    pub fn split_to(&mut self, n: usize) -> Self {
        let start = self.start;
        self.start = std::ptr::from_mut(&mut self[n..]).cast();
        self.n -= n;
        Self { start, n, memory: self.memory.clone() }
    }

    /// All values that were ever taken off, and these; None as long as others have some of them.
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
        // SAFETY: `try_new` mapped n values there or before, as zeros, which every T may be; a page is aligned for them. All
        // access is by this reference or the one below.
        unsafe { std::slice::from_raw_parts(self.start, self.n) }
    }
}

#[allow(unsafe_code)]
impl<T> DerefMut for Pages<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed alone.
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
