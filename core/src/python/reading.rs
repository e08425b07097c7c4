//! The Python function `json_lines`.

use super::arrays::{column_to_pyarrow, offsets};
use super::calls::run;
use crate::documents::json_lines::{Documents, Strings, read};
use crate::parallel::interrupt::CoreError;
use arrow_array::LargeStringArray;
use pyo3::prelude::*;
use std::sync::Arc;

type Columns<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, usize);

#[pyfunction]
#[pyo3(signature = (lines, text_key, id_key=None))]
pub(super) fn json_lines<'py>(
    py: Python<'py>,
    lines: &[u8],
    text_key: &str,
    id_key: Option<&str>,
) -> PyResult<Option<Columns<'py>>> {
    let found =
        run(py, |_| Ok(simdutf8::basic::from_utf8(lines).ok().and_then(|lines| read(lines, text_key, id_key))))?;
    let Some(Documents { texts, ids, n_line_ends }) = found else { return Ok(None) };
    let ids = id_key.map(|_| strings(py, ids)).transpose()?;
    Ok(Some((strings(py, texts)?, ids, n_line_ends)))
}

fn strings(py: Python<'_>, strings: Strings) -> PyResult<Bound<'_, PyAny>> {
    let array = LargeStringArray::try_new(offsets(strings.ends), strings.bytes.into(), None)
        .map_err(|error| CoreError::Internal(error.to_string()))?;
    column_to_pyarrow(py, Arc::new(array))
}
