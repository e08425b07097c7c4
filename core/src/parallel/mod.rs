//! Threads, results in order, processor affinity, and stopping.

pub(crate) mod affinity;
pub mod in_order;
pub mod interrupt;
pub(crate) mod threads;
