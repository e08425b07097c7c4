//! The core of tokenmill: bytes and integers in, bytes and integers out. No files, no clock, no environment.
//!
//! pattern: text → pre-tokens, with scan, named and unicode. count: pre-tokens → counts. train: counts → merges. encode: text → ids. decode: ids → bytes.
//! guard: how long calls are stopped, and panics turned into errors. python: all of it as the module `tokenmill._core`.

// Only scan::block may, and says why.
#![deny(unsafe_code)]

pub mod count;
pub mod decode;
pub mod encode;
pub mod guard;
pub mod merge;
mod named;
pub mod pattern;
mod scan;
pub mod train;
mod unicode;

#[cfg(feature = "python")]
mod python;
