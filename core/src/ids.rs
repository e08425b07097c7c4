//! The ids of a batch in one block of memory, which one thread fills, or several at once.
//!
//! Invariant: ids stand without gaps. Cost: address space for as many ids as there can be, memory for those that there are;
//! pages of 2 MB where the system has some, and a block of moderate size serves again: with fresh pages of 4 kB a tenth of
//! encoding went into getting them.

use crate::pages::Pages;
use crate::tail::Tail;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// A block with more memory than this is given back to the system: 16 MB of text have no more ids.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// A block that waits for the next batch.
pub type Spare = Arc<Mutex<Option<Pages<u32>>>>;

/// Ids, in a list of their own length or at the beginning of a block.
pub enum Ids {
    List(Vec<u32>),
    Block(Block),
}

/// A block and how many ids are in it; of one that was not filled it is not known.
pub struct Block {
    pages: Option<Pages<u32>>,
    n: Option<usize>,
    spare: Spare,
}

impl Block {
    /// One with room for `n_max` ids; None where there are not so many addresses, as under `ulimit -v`.
    pub fn new(n_max: usize, spare: &Spare) -> Option<Self> {
        let kept = spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pages = kept.filter(|pages| pages.len() >= n_max).or_else(|| Pages::try_new(n_max))?;
        Some(Self { pages: Some(pages), n: None, spare: spare.clone() })
    }

    /// The part that is not taken yet.
    pub fn rest(&mut self) -> Rest<'_> {
        Rest(self.pages.as_deref_mut().unwrap_or_default())
    }

    /// An empty list in it, for one who fills it alone.
    pub fn list(&mut self) -> Tail<u32> {
        self.pages.take().map_or_else(Tail::default, Tail::from)
    }

    /// The first `n` ids are there.
    pub fn filled(mut self, n: usize) -> Ids {
        self.n = Some(n);
        Ids::Block(self)
    }

    /// With the list that was made of it.
    pub fn filled_by(mut self, list: Tail<u32>) -> Ids {
        let n = list.n();
        self.pages = list.into_pages();
        self.filled(n)
    }
}

impl Drop for Block {
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

/// The part of a block that is not taken yet.
#[derive(Default)]
pub struct Rest<'b>(&'b mut [u32]);

impl<'b> Rest<'b> {
    /// The next `n` places.
    pub fn take(&mut self, n: usize) -> &'b mut [u32] {
        let (taken, rest) = std::mem::take(&mut self.0).split_at_mut(n);
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_serves_again_where_it_is_long_enough() {
        let spare = Spare::default();
        for (n_max, is_longer) in [(3000, true), (2000, false), (4000, true), (4000, false)] {
            let mut block = Block::new(n_max, &spare).unwrap();
            assert_eq!(block.rest().take(3).iter().any(|&id| id != 0), !is_longer);
            let mut rest = block.rest();
            rest.take(1).fill(7);
            rest.take(2).fill(8);
            let ids = block.filled(3);
            assert_eq!((&*ids, AsRef::<[u8]>::as_ref(&ids).len()), (&[7, 8, 8][..], 12));
        }
        let mut block = Block::new(2000, &spare).unwrap();
        let mut list = block.list();
        list.extend(&[9; 5000]); // more than there is room for
        assert_eq!(*block.filled_by(list), [9; 5000]);
        let long = KEPT_BYTES_MAX / size_of::<u32>() + 1;
        drop(Block::new(long, &spare).unwrap().filled(long));
        assert!(spare.lock().unwrap().is_none());
        drop(Block::new(3, &spare)); // its batch failed, and how much was written is not known
        assert!(spare.lock().unwrap().is_none());
        assert!(Block::new(usize::MAX >> 3, &spare).is_none());
    }
}
