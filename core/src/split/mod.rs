//! Text → pre-tokens.

pub mod named;
pub mod pattern;
pub(crate) mod scan;
pub mod sink;
pub(crate) mod unicode;
