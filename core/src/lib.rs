//! The core of tokenmill: bytes and integers in, bytes and integers out. No files, no clock, no environment.
//!
//! pattern: text → pre-tokens. count: pre-tokens → counts. train: counts → merges. encode: text → ids. decode: ids → bytes.
//! merge: the merges of one pre-token. queue: their order. cache: pre-tokens met before. pieces: a batch in pieces, by threads. tail: a list
//! written in blocks. guard: how long calls are stopped, and panics turned into errors. python: all of it as the module `tokenmill._core`.

#![forbid(unsafe_code)]

pub mod cache;
pub mod count;
pub mod decode;
pub mod encode;
pub mod guard;
pub mod merge;
pub mod pattern;
pub mod pieces;
pub mod queue;
pub mod tail;
pub mod train;

#[cfg(feature = "python")]
mod python;
