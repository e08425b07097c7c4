//! The ids of a batch in one block of memory, which one or several threads fill.
//!
//! Invariant: the ids have no gaps. Cost: address space for as many ids as there can be, and memory for those that there are. It
//! uses pages of 2 MB if the system has them, and a block of moderate size is used again: getting fresh pages of 4 kB took a
//! tenth of the time of encoding.

use crate::memory::pages::Pages;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// A block with more memory than this is returned to the system. 16 MB of text never need more.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// A block that is kept for the next batch.
pub type Spare = Arc<Mutex<Option<Pages<u32>>>>;

/// Ids in a list of exactly their length, or at the beginning of a block.
pub enum Ids {
    List(Vec<u32>),
    Block(IdBlock),
}

/// A block, and the number of ids in it. `n` is None until the block has been filled.
pub struct IdBlock {
    pages: Option<Pages<u32>>,
    n: Option<usize>,
    spare: Spare,
}

impl IdBlock {
    /// A block with room for `n_max` ids; None if there is not enough address space, as under `ulimit -v`.
    pub fn new(n_max: usize, spare: &Spare) -> Option<Self> {
        let kept = spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pages = kept.filter(|pages| pages.len() >= n_max).or_else(|| Pages::try_new(n_max))?;
        Some(Self { pages: Some(pages), n: None, spare: spare.clone() })
    }

    /// Takes the memory out, so that it can be filled.
    pub fn take(&mut self) -> Option<Pages<u32>> {
        self.pages.take()
    }

    /// Puts the memory back, with `n` ids at its beginning.
    pub fn filled(mut self, pages: Option<Pages<u32>>, n: usize) -> Ids {
        (self.pages, self.n) = (pages, Some(n));
        Ids::Block(self)
    }
}

impl Drop for IdBlock {
    fn drop(&mut self) {
        if self.n.is_some_and(|n| n <= KEPT_BYTES_MAX / size_of::<u32>()) {
            *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = self.pages.take();
        }
    }
}

impl Default for Ids {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Deref for Ids {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::List(ids) => ids,
            Self::Block(block) => &block.pages.as_deref().unwrap_or_default()[..block.n.unwrap_or_default()],
        }
    }
}

/// The ids as bytes, so that an Arrow buffer can own them without a copy.
impl AsRef<[u8]> for Ids {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_serves_again_where_it_is_long_enough() {
        let spare = Spare::default();
        for (n_max, is_longer) in [(3000, true), (2000, false), (4000, true), (4000, false)] {
            let mut block = IdBlock::new(n_max, &spare).unwrap();
            let mut pages = block.take().unwrap();
            assert_eq!(pages[..3].iter().any(|&id| id != 0), !is_longer);
            pages[..3].copy_from_slice(&[7, 8, 8]);
            let ids = block.filled(Some(pages), 3);
            assert_eq!((&*ids, AsRef::<[u8]>::as_ref(&ids).len()), (&[7, 8, 8][..], 12));
        }
        let long = KEPT_BYTES_MAX / size_of::<u32>() + 1;
        let mut block = IdBlock::new(long, &spare).unwrap();
        let pages = block.take();
        drop(block.filled(pages, long));
        assert!(spare.lock().unwrap().is_none());
        drop(IdBlock::new(3, &spare)); // its batch failed, so it is unknown how much was written
        assert!(spare.lock().unwrap().is_none());
        assert!(IdBlock::new(usize::MAX >> 3, &spare).is_none());
    }
}
