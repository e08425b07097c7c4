//! Arrow's arrays, to and from Python.

use super::texts::binary_of;
use crate::guard::{self, CoreError};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, LargeListArray, RecordBatch, UInt32Array};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{Field, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3_arrow::{PyRecordBatch, PyTable};
use std::sync::Arc;

pub(super) fn batch_of(schema: Arc<Schema>, columns: Vec<ArrayRef>) -> guard::Result<RecordBatch> {
    RecordBatch::try_new(schema, columns).map_err(|error| CoreError::Internal(error.to_string()))
}

pub(super) fn table_of(py: Python<'_>, batch: RecordBatch) -> PyResult<Bound<'_, PyAny>> {
    let schema = batch.schema();
    PyTable::try_new(vec![batch], schema)?.into_pyarrow(py)
}

/// A column of a record batch, as unsigned 32-bit integers.
pub(super) fn ids_column(batch: &RecordBatch, name: &str) -> PyResult<UInt32Array> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<UInt32Type>());
    column.cloned().ok_or_else(|| PyTypeError::new_err(format!("expected a column {name:?} of uint32.")))
}

pub(super) fn bytes_column(batch: &RecordBatch, name: &str) -> PyResult<ArrayRef> {
    let column =
        batch.column_by_name(name).ok_or_else(|| PyTypeError::new_err(format!("expected a column {name:?}.")))?;
    binary_of(column)
}

pub(super) fn lists_to_pyarrow<'py>(
    py: Python<'py>,
    ends: &OffsetBuffer<i64>,
    values: ArrayRef,
) -> PyResult<Bound<'py, PyAny>> {
    let item = Arc::new(Field::new("item", values.data_type().clone(), false));
    let lists = LargeListArray::try_new(item, ends.clone(), values, None)
        .map_err(|error| CoreError::Internal(error.to_string()))?;
    column_to_pyarrow(py, Arc::new(lists))
}

/// Offsets from the ends of all elements: 0 first.
pub(super) fn offsets(ends: Vec<i64>) -> OffsetBuffer<i64> {
    OffsetBuffer::new(ScalarBuffer::from_iter(std::iter::once(0).chain(ends)))
}

pub(super) fn column_to_pyarrow(py: Python<'_>, column: ArrayRef) -> PyResult<Bound<'_, PyAny>> {
    let schema = Arc::new(Schema::new(vec![Field::new("column", column.data_type().clone(), false)]));
    let batch = batch_of(schema, vec![column])?;
    PyRecordBatch::new(batch).into_pyarrow(py)?.call_method1("column", (0,))
}
