//! A list that is written in blocks of a fixed length, of which only the first elements may count.
//!
//! Invariant: what is beyond `n` is rubbish. Cost: a store and a comparison a block; copying a few elements of a length
//! that is not known beforehand would be a call to memcpy, several times as long.

const FEW: usize = 32;

/// The list: `n` elements of the buffer.
#[derive(Default)]
pub struct Tail<T> {
    buffer: Vec<T>,
    n: usize,
}

impl<T: Copy + Default> Tail<T> {
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

    /// The next `n` elements or more, to be written and then counted by `add`.
    #[inline(always)]
    pub fn room(&mut self, n: usize) -> &mut [T] {
        if self.buffer.len() - self.n < n {
            self.reserve(n);
        }
        &mut self.buffer[self.n..]
    }

    /// Counts `n` elements that were written.
    #[inline(always)]
    pub fn add(&mut self, n: usize) {
        self.n += n;
        debug_assert!(self.n <= self.buffer.len());
    }

    /// Appends all of `more`.
    pub fn extend(&mut self, more: &[T]) {
        let room = &mut self.room(more.len())[..more.len()];
        // A few go block by block, the last ones once more: a call to memcpy takes several times as long.
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
        let needed = self.n + n_more;
        if needed > self.buffer.len() {
            self.buffer.resize(needed.max(2 * self.buffer.len()).max(1024), T::default());
        }
    }

    pub fn n(&self) -> usize {
        self.n
    }

    pub fn as_slice(&self) -> &[T] {
        &self.buffer[..self.n]
    }

    /// Empties the list; a buffer longer than `n_kept_max` is given back.
    pub fn clear(&mut self, n_kept_max: usize) {
        self.n = 0;
        if self.buffer.len() > n_kept_max {
            self.buffer = Vec::new();
        }
    }

    /// The elements as a vector; the list is empty afterwards.
    pub fn take(&mut self) -> Vec<T> {
        self.buffer.truncate(self.n);
        self.n = 0;
        std::mem::take(&mut self.buffer)
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
