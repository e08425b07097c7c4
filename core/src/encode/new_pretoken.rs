//! The ids of a pre-token that is not in the cache: the token of the whole pre-token, or the result of its merges.

use crate::encode::cache::Key;
use crate::encode::merge::Scratch;
use crate::encode::merge_table::MergeTable;
use crate::encode::whole_tokens::Whole;
use crate::memory::out_buffer::Tail;
use crate::parallel::interrupt::{Result, Stop};

/// The parts of an encoder that decide the ids of a pre-token.
pub struct NewPretokens {
    pub merges: MergeTable,
    pub byte_ids: [Option<u32>; 256],
    /// Pre-tokens that become one token: those whose merges give it, or all tokens if merges are ignored for them.
    pub whole: Whole,
}

impl NewPretokens {
    /// Appends the ids. The inner error is the position of a byte without a token.
    #[inline]
    pub fn put(
        &self,
        key: Option<Key>,
        piece: &[u8],
        scratch: &mut Scratch,
        stop: &Stop,
        out: &mut Tail<u32>,
    ) -> Result<std::result::Result<(), usize>> {
        if let Some(id) = self.whole.get(key, piece) {
            out.put([id], 1);
            return Ok(Ok(()));
        }
        self.merge(piece, scratch, stop, out)
    }

    /// Appends the ids that the merges give, even if the whole pre-token is a token.
    pub fn merge(
        &self,
        piece: &[u8],
        scratch: &mut Scratch,
        stop: &Stop,
        out: &mut Tail<u32>,
    ) -> Result<std::result::Result<(), usize>> {
        if let Some(at) = piece.iter().position(|&byte| self.byte_ids[byte as usize].is_none()) {
            return Ok(Err(at));
        }
        scratch.merge(&self.merges, piece, stop, out).map(Ok)
    }
}
