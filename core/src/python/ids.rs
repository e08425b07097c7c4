//! Ids of an Arrow array, read in place.
//!
//! Unsafe because arrow-pyarrow makes an array of its own of what it is given, which took 0.5 of the 1.4 microseconds of a
//! call for one id.

use super::arrays::array_of;
use super::attaching::calling;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt16Type, UInt32Type};
use arrow_array::{Array, ArrayRef};
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Ids as an Arrow array has them.
#[derive(Clone, Copy)]
pub(super) enum IdSlice<'a> {
    Wide(&'a [u32]),
    Narrow(&'a [u16]),
}

/// What holds the ids.
pub(super) enum IdArray<'py> {
    /// What `__arrow_c_array__` gives: the type, and an array that is not taken over.
    Lent(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>),
    Own(ArrayRef),
}

impl<'py> IdArray<'py> {
    /// Of an array of uint16 or uint32 of any Arrow library. Raises TypeError for all else.
    pub(super) fn new(ids: &Bound<'py, PyAny>) -> PyResult<Self> {
        let refusal = || PyTypeError::new_err("expected an Arrow array of uint16 or uint32 without nulls.");
        let lend = ids.getattr_opt(intern!(ids.py(), "__arrow_c_array__"))?.ok_or_else(refusal)?;
        let (schema, array) = calling(ids.py(), || lend.call0())?.extract()?;
        let lent = Self::Lent(schema, array);
        match lent.in_place() {
            Lent::InPlace(_) => Ok(lent),
            Lent::NotAsItIs => Ok(Self::Own(array_of(ids)?)),
            Lent::NoIds => Err(refusal()),
        }
    }

    /// Raises TypeError for nulls.
    pub(super) fn ids(&self) -> PyResult<IdSlice<'_>> {
        let found = match self {
            Self::Own(array) => ids_of(array),
            Self::Lent(..) => match self.in_place() {
                Lent::InPlace(ids) => Some(ids),
                _ => None,
            },
        };
        found.ok_or_else(|| PyTypeError::new_err("expected ids without nulls."))
    }

    #[allow(unsafe_code)]
    fn in_place(&self) -> Lent<'_> {
        let Self::Lent(schema, array) = self else { return Lent::NoIds };
        let (Ok(schema), Ok(array)) =
            (schema.pointer_checked(Some(c"arrow_schema")), array.pointer_checked(Some(c"arrow_array")))
        else {
            return Lent::NoIds;
        };
        // SAFETY: capsules of these names hold such structures (the Arrow PyCapsule interface), and free them when they go.
        let (schema, array) =
            unsafe { (schema.cast::<FFI_ArrowSchema>().as_ref(), array.cast::<FFI_ArrowArray>().as_ref()) };
        // An extension's name is in the metadata.
        let is_plain = schema.dictionary().is_none() && schema.metadata().is_ok_and(|metadata| metadata.is_empty());
        let is_wide = schema.format() == "I";
        if !is_plain || !(is_wide || schema.format() == "S") || array.is_released() || array.num_buffers() != 2 {
            return Lent::NoIds;
        }
        if array.null_count_opt() != Some(0) {
            return Lent::NotAsItIs;
        }
        let (values, from, n) = (array.buffer(1), array.offset(), array.len());
        // SAFETY: an array of such values without nulls has so many in its second buffer, and stays as it is while it is lent.
        let ids = unsafe {
            if is_wide {
                slice(values.cast(), from, n).map(IdSlice::Wide)
            } else {
                slice(values.cast(), from, n).map(IdSlice::Narrow)
            }
        };
        ids.map_or(Lent::NotAsItIs, Lent::InPlace)
    }
}

/// What is lent.
enum Lent<'a> {
    InPlace(IdSlice<'a>),
    /// Ids whose nulls are not counted, or that are not aligned.
    NotAsItIs,
    NoIds,
}

/// `n` values from the one at `from` on; None where they are not aligned.
///
/// # Safety
///
/// They are there, and stay as they are for `'a`.
#[allow(unsafe_code)]
unsafe fn slice<'a, T>(values: *const T, from: usize, n: usize) -> Option<&'a [T]> {
    if n == 0 {
        return Some(&[]);
    }
    // SAFETY: the caller's.
    (!values.is_null() && values.is_aligned()).then(|| unsafe { std::slice::from_raw_parts(values.add(from), n) })
}

/// The ids of an array of uint16 or uint32 without nulls.
pub(super) fn ids_of(values: &ArrayRef) -> Option<IdSlice<'_>> {
    if values.null_count() > 0 {
        return None;
    }
    let wide = values.as_primitive_opt::<UInt32Type>().map(|wide| IdSlice::Wide(wide.values()));
    wide.or_else(|| values.as_primitive_opt::<UInt16Type>().map(|narrow| IdSlice::Narrow(narrow.values())))
}
