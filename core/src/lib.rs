//! The core of tokenmill: bytes and integers in, bytes and integers out. No files, no clock but for how long threads wait, no
//! environment but the processors that threads run on, their signals, and forks.
//!
//! pattern: text → pre-tokens, with scan, named and unicode. count: pre-tokens → counts, in a table; lossy: the same in
//! little memory; runs: sorted counts added up. train: counts → merges, with words, pairs, order and score.
//! encode: text → ids, with cache (pre-tokens met before, by any thread: sharing; its ring of records; prefetch asks for them
//! early), whole (those that are one token), merge (all others; certain: what bytes are merged into first; long: part by part,
//! with a queue), pages (memory in large pages), pieces (a batch in pieces, by threads), stream (their copying) and tail (a list
//! written in blocks). decode: ids → bytes; chars: UTF-8 → characters as Python keeps them. json_lines: lines → texts and ids
//! of documents. md5: the digests that DVC names files by. guard: how calls are stopped, and panics turned into errors; threads:
//! work in several, with spread: on processors of their own. python: all of it as the module `tokenmill._core`.

// Only scan::block, scan::avx512, prefetch, pages, stream, threads, md5, chars and of python ids, ints, objects and symbols may,
// and say why.
#![deny(unsafe_code)]

pub mod cache;
mod certain;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_chars.rs")]
pub mod chars;
pub mod count;
pub mod decode;
pub mod encode;
pub mod guard;
mod ids;
pub mod json_lines;
mod long;
pub mod lossy;
mod map;
pub mod md5;
pub mod merge;
mod named;
pub mod order;
mod pages;
pub mod pairs;
pub mod pattern;
pub mod pieces;
mod prefetch;
mod pretokens;
pub mod queue;
mod ring;
pub mod runs;
mod scan;
pub mod score;
mod sharing;
pub mod sink;
mod spread;
mod stream;
pub mod table;
mod tail;
mod threads;
pub mod train;
mod unicode;
mod whole;
pub mod words;

#[cfg(feature = "python")]
mod python;
