//! The ids of a batch in one block of memory, which one thread fills, or several at once.
//!
//! Invariant: ids stand without gaps. Cost: address space for as many ids as there can be, memory for those that there are;
//! pages of 2 MB where the system has some, and a block of moderate size serves again: with fresh pages of 4 kB a tenth of
//! encoding went into getting them.

use crate::memory::pages::Pages;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// A block with more memory than this is given back to the system: 16 MB of text have no more ids.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// A block that waits for the next batch.
pub type Spare = Arc<Mutex<Option<Pages<u32>>>>;

/// Ids, in a list of their own length or at the beginning of a block.
pub enum Ids {
    List(Vec<u32>),
    Block(IdBlock),
}

/// A block and how many ids are in it; of one that was not filled it is not known.
pub struct IdBlock {
    pages: Option<Pages<u32>>,
    n: Option<usize>,
    spare: Spare,
}

impl IdBlock {
    /// One with room for `n_max` ids; None where there are not so many addresses, as under `ulimit -v`.
    pub fn new(n_max: usize, spare: &Spare) -> Option<Self> {
        let kept = spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pages = kept.filter(|pages| pages.len() >= n_max).or_else(|| Pages::try_new(n_max))?;
        Some(Self { pages: Some(pages), n: None, spare: spare.clone() })
    }

    /// The memory, for those who fill it.
    pub fn take(&mut self) -> Option<Pages<u32>> {
        self.pages.take()
    }

    /// In `pages` the first `n` ids are there.
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

/// As memory, for those who keep the ids in place.
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
        drop(IdBlock::new(3, &spare)); // its batch failed, and how much was written is not known
        assert!(spare.lock().unwrap().is_none());
        assert!(IdBlock::new(usize::MAX >> 3, &spare).is_none());
    }
}
