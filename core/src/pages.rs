//! A table that is read here and there, in pages of 2 MB where the system has some: with pages of 4 kB the look-up of an
//! address can take longer than that of the value.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use memmap2::{MmapMut, MmapOptions};
use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A fixed number of values, which begin as zeros.
pub struct Pages<T> {
    bytes: MmapMut,
    of: PhantomData<T>,
}

impl<T: Pod> Pages<T> {
    /// `n` values. Ends the process when there is no memory, as a vector does.
    pub fn new(n: usize) -> Self {
        Self::try_new(n).unwrap_or_else(|| handle_alloc_error(Layout::array::<T>(n).unwrap_or(Layout::new::<T>())))
    }

    /// `n` values; of those that are never written to, only addresses are taken. None where there are too few.
    pub fn try_new(n: usize) -> Option<Self> {
        let bytes = MmapOptions::new().len(n.checked_mul(size_of::<T>())?).no_reserve_swap().map_anon().ok()?;
        #[cfg(target_os = "linux")]
        bytes.advise(memmap2::Advice::HugePage).unwrap_or_default(); // a system without them keeps its small ones
        Some(Self { bytes, of: PhantomData })
    }
}

impl<T: Pod> Deref for Pages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        cast_slice(&self.bytes)
    }
}

impl<T: Pod> DerefMut for Pages<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        cast_slice_mut(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_begin_as_zeros_and_stay_as_written() {
        let mut pages: Pages<u64> = Pages::new(300_000);
        assert!(pages.len() == 300_000 && pages.iter().all(|&one| one == 0));
        pages.iter_mut().zip(0..).for_each(|(place, i)| *place = i);
        assert!(pages.iter().copied().eq(0..300_000));
        assert!(Pages::<u64>::try_new(usize::MAX >> 4).is_none());
    }
}
