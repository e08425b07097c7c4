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
    /// `n` values; of those that are never written to, only addresses are taken. Ends the process when there is no memory, as a
    /// vector does.
    pub fn new(n: usize) -> Self {
        let bytes = MmapOptions::new().len(n * size_of::<T>()).no_reserve_swap().map_anon();
        let bytes = bytes.unwrap_or_else(|_| handle_alloc_error(Layout::new::<T>()));
        #[cfg(target_os = "linux")]
        bytes.advise(memmap2::Advice::HugePage).unwrap_or_default(); // a system without them keeps its small ones
        Self { bytes, of: PhantomData }
    }
}

impl<T: Pod> Clone for Pages<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len());
        copy.copy_from_slice(self);
        copy
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
    fn a_copy_has_the_values_and_is_another() {
        let mut pages: Pages<u64> = Pages::new(300_000);
        assert!(pages.len() == 300_000 && pages.iter().all(|&one| one == 0));
        pages.iter_mut().zip(0..).for_each(|(place, i)| *place = i);
        let copy = pages.clone();
        pages[7] = 0;
        assert!(copy.iter().copied().eq(0..300_000));
    }
}
