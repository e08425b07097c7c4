//! Work in several threads, in order, on processors of their own, and how it is stopped.

pub(crate) mod affinity;
pub mod in_order;
pub mod interrupt;
pub(crate) mod threads;
