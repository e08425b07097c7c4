//! A pair of ids as a number, and what it is merged into.

use bytemuck::{Pod, Zeroable};

pub(crate) const NONE: u32 = u32::MAX;
/// No merge: as a rank it comes after all others.
pub(crate) const NO_PAIR: Pair = Pair { rank: NONE, token: NONE };

/// How early a pair is merged (a number below that of all merges, in their order of ranks), and into what.
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
