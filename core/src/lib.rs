//! The core of tokenmill: bytes and integers in, bytes and integers out. No files, no clock, no environment.
//!
//! pattern: text → pre-tokens. count: pre-tokens → counts, in a table; lossy: the same in
//! little memory; runs: sorted counts added up. train: counts → merges. encode: text → ids. decode: ids → bytes.
//! guard: how long calls are stopped, and panics turned into errors. python: all of it as the module `tokenmill._core`.

#![forbid(unsafe_code)]

pub mod count;
pub mod decode;
pub mod encode;
pub mod guard;
pub mod lossy;
pub mod merge;
pub mod pattern;
pub mod runs;
pub mod table;
pub mod train;

#[cfg(feature = "python")]
mod python;
