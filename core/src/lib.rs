//! The core of tokenmill: bytes and integers in, bytes and integers out. It opens no file. It asks the clock only for how long
//! threads wait, and the environment only for the processors that threads run on.
//!
//! Each folder is a room, and uses only rooms above it in this table.
//!
//! | room | job | used by |
//! |---|---|---|
//! | [`pair`] | a pair of ids as a number, and what it is merged into | train, encode |
//! | [`memory`] | memory in large pages, output written in blocks, records in a ring, prefetching | all below |
//! | [`parallel`] | work in several threads and in order, on processors of their own; how a call is stopped | all below |
//! | [`split`] | text → pre-tokens: named patterns by scanners, any other by a regex | count, encode |
//! | [`count`] | pre-tokens → counts: exact in a table, approximate in little memory, sorted runs added up | python |
//! | [`train`] | counts → merges: words, pairs, the queue of pairs, and other scores | python |
//! | [`decode`] | ids → bytes | encode, python |
//! | [`encode`] | text → ids: the cache of pre-tokens met before, the merges of all others | python |
//! | [`documents`] | lines of JSON → texts and ids of documents | python |
//! | `python` | all of it as the module `tokenmill._core` | Python |

// Only split::scan::block, split::scan::avx512, memory::prefetch, memory::pages, python::ids and python::ints may, and say why.
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod pair;

pub mod memory;

pub mod parallel;

pub mod split;

pub mod count;

pub mod train;

pub mod decode;

pub mod encode;

pub mod documents;

#[cfg(feature = "python")]
mod python;
