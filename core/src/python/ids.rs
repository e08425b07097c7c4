//! The ids in an Arrow array.

use super::arrays::array_of;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt16Type, UInt32Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;

/// Ids as they are in an Arrow array.
#[derive(Clone, Copy)]
pub(super) enum IdSlice<'a> {
    Wide(&'a [u32]),
    Narrow(&'a [u16]),
}

/// An array of uint16 or uint32 of any Arrow library. Raises TypeError for anything else.
pub(super) fn id_array(ids: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let refusal = || PyTypeError::new_err("expected an Arrow array of uint16 or uint32 without nulls.");
    if !ids.hasattr(intern!(ids.py(), "__arrow_c_array__"))? {
        return Err(refusal());
    }
    let array = array_of(ids)?;
    let is_id = matches!(array.data_type(), DataType::UInt16 | DataType::UInt32);
    if is_id && array.null_count() == 0 { Ok(array) } else { Err(refusal()) }
}

/// The ids of an array of uint16 or uint32 without nulls.
pub(super) fn ids_of(values: &ArrayRef) -> Option<IdSlice<'_>> {
    if values.null_count() > 0 {
        return None;
    }
    let wide = values.as_primitive_opt::<UInt32Type>().map(|wide| IdSlice::Wide(wide.values()));
    wide.or_else(|| values.as_primitive_opt::<UInt16Type>().map(|narrow| IdSlice::Narrow(narrow.values())))
}
