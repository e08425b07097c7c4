//! Python's objects of text, bytes and integers, by the calls of its C API themselves.
//!
//! Unsafe because pyo3 has no safe way to them: its own make a panic of a failed allocation, and text that is no UTF-8 in two
//! goes; and they count a reference up and down for each integer of a list: 1,000 ids decode in 15 us so, and in 9 us here.

#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

/// Text of bytes; those that are no UTF-8 become U+FFFD as `bytes.decode(errors="replace")` has it.
pub(super) fn str_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: the pointer and the length are those of a slice, which has at most isize::MAX bytes; what comes back is a new
    // reference, or null with an error set.
    let text = unsafe {
        let made =
            ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t, c"replace".as_ptr());
        Bound::from_owned_ptr_or_err(py, made)?
    };
    Ok(text.cast_into()?)
}

/// A copy of bytes.
pub(super) fn bytes_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: as above.
    let copy = unsafe {
        let made = ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t);
        Bound::from_owned_ptr_or_err(py, made)?
    };
    Ok(copy.cast_into()?)
}

/// Element `i` as an unsigned 32-bit integer, as `list.get_item(i)?.extract()` has it. The module asks for the GIL (`gil_used`),
/// so nobody changes the list between two calls.
#[inline(always)]
pub(super) fn u32_at(list: &Bound<'_, PyList>, i: usize) -> PyResult<u32> {
    // SAFETY: the GIL is held, and PyLong_AsLong of an int runs nobody's code, so the list keeps what is borrowed from it.
    // Null, with an error set, is an index beyond its end.
    let value = unsafe {
        let item = ffi::PyList_GetItem(list.as_ptr(), i as ffi::Py_ssize_t);
        if !item.is_null() && ffi::PyLong_CheckExact(item) != 0 { ffi::PyLong_AsLong(item) } else { -1 }
    };
    u32::try_from(value).or_else(|_| {
        drop(PyErr::take(list.py()));
        list.get_item(i)?.extract()
    })
}
