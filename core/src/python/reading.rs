//! The Python functions `json_lines`, `read_bpe` and `bpe_json`.

use super::arrays::{bytes_column, column_to_pyarrow, ids_column, offsets, record_batch_of};
use super::calls::run;
use super::texts::slices;
use crate::documents::json_lines::{Documents, Strings, read};
use crate::parallel::interrupt::CoreError;
use crate::tokenizer_json;
use arrow_array::LargeStringArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Arc;

const MERGE_BYTES: usize = 16;

type Columns<'py> = (Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>, usize);

#[pyfunction]
pub(super) fn json_lines<'py>(
    py: Python<'py>,
    lines: &[u8],
    text_key: &str,
    further_keys: Vec<String>,
) -> PyResult<Option<Columns<'py>>> {
    let found =
        run(py, |_| Ok(simdutf8::basic::from_utf8(lines).ok().and_then(|lines| read(lines, text_key, &further_keys))))?;
    let Some(Documents { texts, values, n_line_ends }) = found else { return Ok(None) };
    let values = values.into_iter().map(|of_key| strings(py, of_key)).collect::<PyResult<_>>()?;
    Ok(Some((strings(py, texts)?, values, n_line_ends)))
}

type BpeParts<'py> = (Bound<'py, PyBytes>, Bound<'py, PyDict>, Bound<'py, PyBytes>);

#[pyfunction]
pub(super) fn read_bpe<'py>(py: Python<'py>, file: &[u8]) -> PyResult<Option<BpeParts<'py>>> {
    let found = run(py, |_| Ok(simdutf8::basic::from_utf8(file).ok().and_then(tokenizer_json::read)))?;
    let Some(found) = found else { return Ok(None) };
    let vocabulary = PyDict::new(py);
    for (token, id) in &found.vocabulary {
        vocabulary.set_item(token.as_ref(), id)?;
    }
    let merges: Vec<u8> = found.merges.into_iter().flatten().flat_map(u32::to_le_bytes).collect();
    Ok(Some((PyBytes::new(py, found.rest.as_bytes()), vocabulary, PyBytes::new(py, &merges))))
}

#[pyfunction]
pub(super) fn bpe_json(py: Python<'_>, merges: &[u8], vocabulary: &Bound<'_, PyAny>) -> PyResult<(String, String)> {
    if !merges.len().is_multiple_of(MERGE_BYTES) {
        return Err(PyValueError::new_err(format!(
            "expected {MERGE_BYTES} bytes for each merge; found {} in all.",
            merges.len()
        )));
    }
    let vocabulary = record_batch_of(vocabulary)?;
    let (ids, tokens) = (ids_column(&vocabulary, "id")?, bytes_column(&vocabulary, "token")?);
    run(py, |_| {
        let (fields, _) = merges.as_chunks::<4>();
        let (rows, _) = fields.as_chunks::<4>();
        let rows = rows.iter().map(|row| row.map(u32::from_le_bytes)).collect();
        let tokens = ids.values().iter().copied().zip(slices(&tokens)).collect();
        Ok((tokenizer_json::merges_json(rows), tokenizer_json::tokens_json(tokens)))
    })
}

fn strings(py: Python<'_>, strings: Strings) -> PyResult<Bound<'_, PyAny>> {
    let array = LargeStringArray::try_new(offsets(strings.ends), strings.bytes.into(), None)
        .map_err(|error| CoreError::Internal(error.to_string()))?;
    column_to_pyarrow(py, Arc::new(array))
}
