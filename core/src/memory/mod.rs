//! Memory: large pages, output blocks, records, and prefetching.

pub(crate) mod out_buffer;
pub(crate) mod pages;
pub(crate) mod prefetch;
pub(crate) mod records;
