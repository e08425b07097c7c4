//! Memory: pages, blocks and records; what the processor is asked for early.

pub(crate) mod out_buffer;
pub(crate) mod pages;
pub(crate) mod prefetch;
pub(crate) mod records;
