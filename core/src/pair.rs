//! A pair of ids as a number, and the merge of that pair.

use bytemuck::{Pod, Zeroable};

pub(crate) const NONE: u32 = u32::MAX;
/// No merge. As a rank, it comes after all others.
pub(crate) const NO_PAIR: Pair = Pair { rank: NONE, token: NONE };

/// The merge of a pair: its rank (numbered from 0 in the order of merges) and the resulting token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Pair {
    pub rank: u32,
    pub token: u32,
}

/// A pair of ids as a number.
pub fn key_of(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// A hash of a pair of ids. Its highest bits depend on all bits of both.
#[inline(always)]
pub(crate) fn mixed(left: u32, right: u32) -> u64 {
    let half = key_of(left, right).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (half ^ half >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
