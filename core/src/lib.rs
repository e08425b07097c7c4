//! The core of tokenmill: bytes and integers in, bytes and integers out. It opens no files. It reads the clock only to limit how
//! long threads wait, and the system only for the processors that threads run on.
//!
//! Each folder is a room. A room uses only rooms above it in this table.
//!
//! | room | job | used by |
//! |---|---|---|
//! | [`pair`] | a pair of ids as a number, and the merge of that pair | train, encode |
//! | [`hash`] | hashes of text, seeded anew in each process | count, train, encode, tokenizer_json |
//! | [`memory`] | memory in large pages, output in blocks, records in a ring, prefetching | all below |
//! | [`parallel`] | threads, results in order, processor affinity, and how a call is stopped | all below |
//! | [`split`] | text → pre-tokens: scanners for the named patterns, a regex for any other | count, encode |
//! | [`count`] | pre-tokens → counts: exact in a table, sums of sorted runs | python |
//! | [`train`] | counts → merges: words, pairs, the queue of pairs, and the scores | python |
//! | [`decode`] | ids → bytes | encode, python |
//! | [`encode`] | text → ids: the cache of known pre-tokens, the merges of new ones | python |
//! | [`documents`] | lines of JSON → texts and ids of documents | python |
//! | [`tokenizer_json`] | a tokenizer.json with BPE → tokens and merges by id, and these → JSON for a digest | python |
//! | `normal_form` | Rust text → what its compiler reads outside tests | build.rs |
//! | `python` | all of this as the module `tokenmill._core` | Python |

// Unsafe code is allowed only in split::scan::block, split::scan::avx512, memory::prefetch, memory::pages, python::ids and
// python::ints. Each of them says why.
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod pair;

pub mod hash;

pub mod memory;

pub mod parallel;

pub mod split;

pub mod count;

pub mod train;

pub mod decode;

pub mod encode;

pub mod documents;

pub mod tokenizer_json;

#[cfg(test)]
mod normal_form;

#[cfg(test)]
mod tests;

#[cfg(feature = "python")]
mod python;
