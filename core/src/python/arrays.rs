//! Arrow arrays to and from Python.

use super::attaching::calling;
use super::calls::CorpusError;
use super::texts::binary_of;
use crate::parallel::interrupt::{self, CoreError};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, LargeListArray, RecordBatch, UInt32Array, make_array};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_pyarrow::{FromPyArrow, IntoPyArrow, Table, ToPyArrow};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;

pub(super) fn batch_of(schema: Arc<Schema>, columns: Vec<ArrayRef>) -> interrupt::Result<RecordBatch> {
    RecordBatch::try_new(schema, columns).map_err(|error| CoreError::Internal(error.to_string()))
}

pub(super) fn table_of(py: Python<'_>, batch: RecordBatch) -> PyResult<Bound<'_, PyAny>> {
    let schema = batch.schema();
    let table = Table::try_new(vec![batch], schema).map_err(|error| CoreError::Internal(error.to_string()))?;
    calling(py, || table.into_pyarrow(py))
}

pub(super) fn batch_to_pyarrow(py: Python<'_>, batch: RecordBatch) -> PyResult<Bound<'_, PyAny>> {
    calling(py, || batch.to_pyarrow(py))
}

/// An array of any Arrow library, with offsets and nulls checked: no value ends behind its buffer. Unaligned buffers are copied.
pub(super) fn array_of(array: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    // pyarrow compares the last offset with the length of the buffer, which the C interface does not pass on.
    if let Some(validate) = calling(array.py(), || array.getattr_opt("validate"))? {
        calling(array.py(), || validate.call0()).map_err(|error| broken(error.value(array.py())))?;
    }
    let data = calling(array.py(), || ArrayData::from_pyarrow_bound(array))?;
    check(&data).map_err(broken)?;
    Ok(make_array(data))
}

/// Whether strings are UTF-8 is left out: it is checked where they are read as text.
fn check(data: &ArrayData) -> Result<(), ArrowError> {
    let kind = match data.data_type() {
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        DataType::Utf8View => DataType::BinaryView,
        other => other.clone(),
    };
    if !data.is_empty() {
        // A slice without values keeps its first offset, and the C interface gives it no buffer of values.
        data.clone().into_builder().data_type(kind).build()?;
    }
    data.child_data().iter().try_for_each(check)
}

fn broken(error: impl std::fmt::Display) -> PyErr {
    CorpusError::new_err(format!(
        "an Arrow array is broken: {error}. Read or make it again; pyarrow's validate(full=True) says more."
    ))
}

/// The chunks of a pyarrow ChunkedArray, or an array of any Arrow library as a single chunk.
pub(super) fn chunks_of(arrays: &Bound<'_, PyAny>) -> PyResult<Vec<ArrayRef>> {
    let chunks = calling(arrays.py(), || arrays.getattr_opt("chunks"))?;
    match chunks {
        Some(chunks) => chunks.try_iter()?.map(|chunk| array_of(&chunk?)).collect(),
        None => Ok(vec![array_of(arrays)?]),
    }
}

pub(super) fn record_batch_of(batch: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    calling(batch.py(), || RecordBatch::from_pyarrow_bound(batch))
}

/// A column of a record batch as unsigned 32-bit integers.
pub(super) fn ids_column(batch: &RecordBatch, name: &str) -> PyResult<UInt32Array> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<UInt32Type>());
    column.cloned().ok_or_else(|| PyTypeError::new_err(format!("expected a column {name:?} of uint32.")))
}

pub(super) fn bytes_column(batch: &RecordBatch, name: &str) -> PyResult<ArrayRef> {
    let column =
        batch.column_by_name(name).ok_or_else(|| PyTypeError::new_err(format!("expected a column {name:?}.")))?;
    check(&column.to_data()).map_err(broken)?;
    binary_of(column)
}

pub(super) fn lists_to_pyarrow<'py>(
    py: Python<'py>,
    ends: &OffsetBuffer<i64>,
    values: ArrayRef,
) -> PyResult<Bound<'py, PyAny>> {
    // Nullable like pyarrow's own lists, so that nobody has to convert them.
    let item = Arc::new(Field::new("item", values.data_type().clone(), true));
    let lists = LargeListArray::try_new(item, ends.clone(), values, None)
        .map_err(|error| CoreError::Internal(error.to_string()))?;
    column_to_pyarrow(py, Arc::new(lists))
}

/// Offsets from the ends of all elements; they begin with 0.
pub(super) fn offsets(ends: Vec<i64>) -> OffsetBuffer<i64> {
    OffsetBuffer::new(ScalarBuffer::from_iter(std::iter::once(0).chain(ends)))
}

pub(super) fn column_to_pyarrow(py: Python<'_>, column: ArrayRef) -> PyResult<Bound<'_, PyAny>> {
    calling(py, || column.to_data().to_pyarrow(py))
}
