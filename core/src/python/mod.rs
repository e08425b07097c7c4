//! The Python module `tokenmill._core`: converts arguments, releases the GIL, calls the core, and converts errors.
//!
//! Invariant: no panic and no Rust error type reaches Python. Text that is not UTF-8 is refused before the core sees it.

mod arrays;
mod attaching;
mod calls;
mod checking;
mod counting;
mod encoding;
mod finding;
mod ids;
mod ints;
mod normalizing;
mod parity;
mod reading;
mod superwords;
mod texts;
mod training;

use crate::split::named::{LIKE, NAMED};
use crate::split::pattern::Pattern;
use crate::train::byte_order;
use calls::run;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;

#[pyfunction]
fn patterns() -> BTreeMap<&'static str, Vec<&'static str>> {
    NAMED.iter().map(|(name, steps)| (*name, steps.to_vec())).collect()
}

#[pyfunction]
fn patterns_like() -> BTreeMap<&'static str, Vec<&'static str>> {
    LIKE.iter().map(|(name, texts)| (*name, texts.to_vec())).collect()
}

#[pyfunction(name = "byte_order")]
fn byte_order_py(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &byte_order())
}

#[pyfunction]
fn split(py: Python<'_>, steps: Vec<String>, text: &str) -> PyResult<Vec<String>> {
    run(py, |stop| {
        let mut pieces = Vec::new();
        Pattern::new(&steps)?.split(text, stop, &mut |piece| {
            pieces.push(piece.to_string());
            Ok(())
        })?;
        Ok(pieces)
    })
}

#[pyfunction]
fn splitter(py: Python<'_>, steps: Vec<String>) -> PyResult<&'static str> {
    run(py, |_| Ok(Pattern::new(&steps)?.engine()))
}

#[pyfunction]
fn match_bytes_min(regex: &str) -> usize {
    regex_automata::util::syntax::parse(regex).ok().and_then(|tree| tree.properties().minimum_len()).unwrap_or(0)
}

#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    attaching::register(module)?;
    module.add("SOURCE_HASH", env!("TOKENMILL_SOURCE_HASH"))?;
    module.add("CODE_HASH", env!("TOKENMILL_CODE_HASH"))?;
    module.add_class::<counting::Counter>()?;
    module.add_class::<counting::Merger>()?;
    module.add_class::<encoding::PyEncoder>()?;
    module.add_class::<finding::TextFinder>()?;
    module.add_class::<superwords::Neighbours>()?;
    module.add_function(wrap_pyfunction!(patterns, module)?)?;
    module.add_function(wrap_pyfunction!(patterns_like, module)?)?;
    module.add_function(wrap_pyfunction!(byte_order_py, module)?)?;
    module.add_function(wrap_pyfunction!(calls::deadline, module)?)?;
    module.add_function(wrap_pyfunction!(calls::interrupt, module)?)?;
    module.add_function(wrap_pyfunction!(calls::look, module)?)?;
    module.add_function(wrap_pyfunction!(calls::n_calls, module)?)?;
    module.add_function(wrap_pyfunction!(checking::count_ids, module)?)?;
    module.add_function(wrap_pyfunction!(checking::sha256_each, module)?)?;
    module.add_function(wrap_pyfunction!(match_bytes_min, module)?)?;
    module.add_function(wrap_pyfunction!(normalizing::not_nfc, module)?)?;
    module.add_function(wrap_pyfunction!(parity::train_parity, module)?)?;
    module.add_function(wrap_pyfunction!(reading::bpe_json, module)?)?;
    module.add_function(wrap_pyfunction!(reading::json_lines, module)?)?;
    module.add_function(wrap_pyfunction!(reading::read_bpe, module)?)?;
    module.add_function(wrap_pyfunction!(split, module)?)?;
    module.add_function(wrap_pyfunction!(splitter, module)?)?;
    module.add_function(wrap_pyfunction!(training::merge_rows, module)?)?;
    module.add_function(wrap_pyfunction!(training::train, module)?)
}
