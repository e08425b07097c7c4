//! The Python functions `sha256_each` and `count_ids`, with which a dataset is checked.

use super::arrays::{array_of, column_to_pyarrow};
use super::calls::run;
use super::ids::{IdSlice, id_array, ids_of};
use crate::parallel::interrupt::{self, CoreError, Stop};
use arrow_array::cast::AsArray;
use arrow_array::{Array, FixedSizeBinaryArray, Int64Array};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use sha2::{Digest, Sha256};
use std::sync::Arc;

const DIGEST_BYTES: i32 = 32;
/// The number of ids that are counted between two checks whether to stop.
const IDS_AT_A_TIME: usize = 1 << 18;

#[pyfunction]
pub(super) fn sha256_each<'py>(py: Python<'py>, texts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let array = array_of(texts)?;
    let Some(texts) = array.as_string_opt::<i64>() else {
        return Err(PyTypeError::new_err(format!(
            "expected an Arrow array of large_string; found {}.",
            array.data_type()
        )));
    };
    let digests = run(py, |stop| {
        let mut digests = Vec::with_capacity(DIGEST_BYTES as usize * texts.len());
        for i in 0..texts.len() {
            stop.check()?;
            let text = if texts.is_valid(i) { texts.value(i) } else { "" };
            digests.extend_from_slice(&Sha256::digest(text));
        }
        FixedSizeBinaryArray::try_new(DIGEST_BYTES, digests.into(), None)
            .map_err(|error| CoreError::Internal(error.to_string()))
    })?;
    column_to_pyarrow(py, Arc::new(digests))
}

#[pyfunction]
pub(super) fn count_ids<'py>(
    py: Python<'py>,
    ids: &Bound<'py, PyAny>,
    id_max: usize,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let array = id_array(ids)?;
    let counts = run(py, |stop| match ids_of(&array) {
        Some(IdSlice::Wide(ids)) => counts_of(ids, id_max, stop),
        Some(IdSlice::Narrow(ids)) => counts_of(ids, id_max, stop),
        None => Err(CoreError::Internal("the ids are of another type".to_owned())),
    })?;
    counts.map(|counts| column_to_pyarrow(py, Arc::new(Int64Array::from(counts)))).transpose()
}

/// How often each id up to `id_max` occurs, by id; None if there is a larger one.
fn counts_of<I: Copy + Into<u32>>(ids: &[I], id_max: usize, stop: &Stop) -> interrupt::Result<Option<Vec<i64>>> {
    let mut counts = vec![0; id_max + 1];
    for some in ids.chunks(IDS_AT_A_TIME) {
        stop.check()?;
        for &id in some {
            match counts.get_mut(id.into() as usize) {
                Some(count) => *count += 1,
                None => return Ok(None),
            }
        }
    }
    Ok(Some(counts))
}
