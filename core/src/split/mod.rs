//! Text → pre-tokens.

pub(crate) mod byte_joins;
pub(crate) mod joins;
pub mod named;
pub mod pattern;
pub(crate) mod scan;
pub mod sink;
pub(crate) mod unicode;
