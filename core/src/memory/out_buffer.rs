//! An output list that is written in blocks of a fixed length, of which only the first elements may count.
//!
//! Invariant: elements beyond `n` are garbage. Cost: one store and one comparison per block. Copying a few elements of a length
//! that is unknown at compile time would call memcpy, which takes several times as long.

use crate::memory::pages::Pages;
use bytemuck::Zeroable;
use std::ops::{Deref, DerefMut};

const FEW: usize = 32;

/// The list: the first `n` elements of the buffer.
pub struct Tail<T> {
    buffer: Buffer<T>,
    n: usize,
}

enum Buffer<T> {
    List(Vec<T>),
    Pages(Pages<T>),
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        match self {
            Self::List(list) => list,
            Self::Pages(pages) => pages,
        }
    }
}

impl<T> DerefMut for Buffer<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::List(list) => list,
            Self::Pages(pages) => pages,
        }
    }
}

impl<T> Default for Tail<T> {
    fn default() -> Self {
        Self { buffer: Buffer::List(Vec::new()), n: 0 }
    }
}

impl<T> From<Pages<T>> for Tail<T> {
    /// An empty list that is written into these pages.
    fn from(pages: Pages<T>) -> Self {
        Self { buffer: Buffer::Pages(pages), n: 0 }
    }
}

impl<T: Copy + Default + Zeroable> Tail<T> {
    /// Appends the first `n` elements of `block`.
    #[inline(always)]
    pub fn put<const N: usize>(&mut self, block: [T; N], n: usize) {
        debug_assert!(n <= N);
        match self.buffer.get_mut(self.n..self.n + N) {
            Some(place) => place.copy_from_slice(&block),
            None => self.put_growing(block),
        }
        self.n += n;
    }

    #[cold]
    #[inline(never)]
    fn put_growing<const N: usize>(&mut self, block: [T; N]) {
        self.reserve(N);
        self.buffer[self.n..self.n + N].copy_from_slice(&block);
    }

    /// Room for the next `n` elements or more. Write them, then count them with `add`.
    #[inline(always)]
    pub fn room(&mut self, n: usize) -> &mut [T] {
        if self.buffer.len() - self.n < n {
            self.reserve(n);
        }
        &mut self.buffer[self.n..]
    }

    /// Counts `n` elements that were written to the room.
    #[inline(always)]
    pub fn add(&mut self, n: usize) {
        self.n += n;
        debug_assert!(self.n <= self.buffer.len());
    }

    /// Appends all of `more`.
    pub fn extend(&mut self, more: &[T]) {
        let room = &mut self.room(more.len())[..more.len()];
        // A few elements are copied in blocks, the last block overlapping: a call to memcpy takes several times as long.
        if let (Some(last), ..=FEW) = (more.last_chunk::<4>(), more.len()) {
            let (blocks, _) = more.as_chunks::<4>();
            let (places, _) = room.as_chunks_mut::<4>();
            places.iter_mut().zip(blocks).for_each(|(place, block)| *place = *block);
            room.last_chunk_mut::<4>().into_iter().for_each(|place| *place = *last);
        } else {
            room.copy_from_slice(more);
        }
        self.n += more.len();
    }

    #[cold]
    fn reserve(&mut self, n_more: usize) {
        let needed = (self.n + n_more).max(2 * self.buffer.len()).max(1024);
        match &mut self.buffer {
            Buffer::List(list) => list.resize(needed, T::default()),
            Buffer::Pages(pages) => {
                let mut more = Pages::new(needed);
                more[..self.n].copy_from_slice(&pages[..self.n]);
                *pages = more;
            }
        }
    }

    pub fn n(&self) -> usize {
        self.n
    }

    pub fn as_slice(&self) -> &[T] {
        &self.buffer[..self.n]
    }

    /// Takes away all elements after the first `n`.
    pub fn truncate(&mut self, n: usize) {
        self.n = self.n.min(n);
    }

    /// Empties the list. A buffer longer than `n_kept_max` is freed.
    pub fn clear(&mut self, n_kept_max: usize) {
        self.n = 0;
        if self.buffer.len() > n_kept_max {
            *self = Self::default();
        }
    }

    /// The elements as a vector; the list is empty afterwards.
    pub fn take(&mut self) -> Vec<T> {
        match std::mem::take(self) {
            Self { buffer: Buffer::List(mut list), n } => {
                list.truncate(n);
                list
            }
            in_pages => in_pages.as_slice().to_vec(),
        }
    }

    /// The pages that hold the elements, if the list is in pages.
    pub fn into_pages(self) -> Option<Pages<T>> {
        match self.buffer {
            Buffer::List(_) => None,
            Buffer::Pages(pages) => Some(pages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_counts_is_kept() {
        let mut list = Tail::default();
        list.put([1, 2, 3, 9], 3);
        list.extend(&[4; 2000]);
        list.put([5, 9, 9, 9], 1);
        assert_eq!(list.n(), 2004);
        assert_eq!((list.as_slice()[..4].to_vec(), list.as_slice()[2003]), (vec![1, 2, 3, 4], 5));
        assert_eq!(list.take().len(), 2004);
        assert_eq!(list.take(), Vec::<i32>::new());
    }

    #[test]
    fn one_in_pages_is_as_any_other_and_grows() {
        let mut list = Tail::from(Pages::new(10));
        list.extend(&[1, 2, 3]);
        list.room(5000)[..2].copy_from_slice(&[4, 5]);
        list.add(2);
        assert_eq!(list.as_slice(), [1, 2, 3, 4, 5]);
        assert!(list.into_pages().is_some_and(|pages: Pages<i32>| pages.starts_with(&[1, 2, 3, 4, 5, 0])));
        assert!(Tail::<i32>::default().into_pages().is_none());
    }

    #[test]
    fn lists_of_all_lengths_are_appended() {
        let (mut list, mut expected) = (Tail::default(), Vec::new());
        for n in 0..2 * FEW {
            let more: Vec<usize> = (n..2 * n).collect();
            list.extend(&more);
            expected.extend(more);
        }
        assert_eq!(list.take(), expected);
    }
}
