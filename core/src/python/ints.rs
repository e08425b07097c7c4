//! The integers of a list, read where they lie.
//!
//! Unsafe because the limited API, by which this module is made for all versions, has one call for an element of a list and one
//! for its value: 1,000 ids decode in 5 us so, and in 3 us here; by pyo3's safe way, which counts references too, in 15 us.

#![allow(unsafe_code)]

use crate::memory::prefetch::prefetch;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyType};
use std::sync::OnceLock;

/// So far ahead an integer is asked of memory.
const AHEAD: usize = 32;

/// A list: `PyListObject` of CPython's Include/cpython/listobject.h, the same in 3.11 to 3.13.
#[repr(C)]
struct ListObject {
    base: ffi::PyVarObject,
    items: *const *const IntObject,
}

/// An integer: `PyLongObject` of CPython's Include/cpython/longintrepr.h.
#[repr(C)]
struct IntObject {
    base: ffi::PyObject,
    /// Number of digits and sign.
    tag: usize,
    /// The first 30 bits.
    digit: u32,
}

/// The elements as unsigned 32-bit integers, as `list.get_item(i)?.extract()` has them.
pub(super) fn u32s_of(list: &Bound<'_, PyList>) -> PyResult<Vec<u32>> {
    let (n, tag) = (list.len(), one_digit_tag(list.py()));
    let mut all = Vec::with_capacity(n);
    while all.len() < n {
        if let Some(tag) = tag {
            extend_in_place(&mut all, list, n, tag);
        }
        if all.len() < n {
            // What is no integer may run code, which may change the list.
            all.push(list.get_item(all.len())?.extract()?);
        }
    }
    Ok(all)
}

/// Adds the elements from the one at `all.len()` on, up to the first that is no integer of `tag`, or to the one at `end`.
fn extend_in_place(all: &mut Vec<u32>, list: &Bound<'_, PyList>, end: usize, tag: usize) {
    let n = list.len().min(end);
    // SAFETY: this is a list of n elements and maybe more, each an object, in a layout that `one_digit_tag` knows. The GIL is
    // held (the module asks for it: `gil_used`) and nothing here runs anybody's code, so the list and its elements stay.
    let items = unsafe {
        let items = (*list.as_ptr().cast::<ListObject>()).items;
        if n == 0 { &[] } else { std::slice::from_raw_parts(items, n) }
    };
    let Some(rest) = items.get(all.len()..) else { return };
    all.extend(rest.iter().enumerate().map_while(|(i, &item)| {
        // SAFETY: as above; what is an integer has a tag, and one of this tag has a digit.
        unsafe {
            if let Some(&later) = rest.get(i + AHEAD) {
                prefetch(&(*later).base);
            }
            let is_int = ffi::PyLong_CheckExact(item.cast_mut().cast()) != 0;
            (is_int && (*item).tag == tag).then(|| (*item).digit)
        }
    }));
}

/// The tag of the integers from 1 to 2^30 - 1, where this Python is one with which the layouts above were tried, and was built
/// with neither digits of 15 bits nor more fields in each object.
fn one_digit_tag(py: Python<'_>) -> Option<usize> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let size = |kind: Bound<'_, PyType>, name| kind.getattr(name).and_then(|size| size.extract::<usize>()).ok();
        let sizes = [
            size(py.get_type::<PyAny>(), "__basicsize__"),
            size(py.get_type::<PyList>(), "__basicsize__"),
            size(py.get_type::<PyInt>(), "__itemsize__"),
        ];
        // SAFETY: a number that is never changed.
        let version = unsafe { ffi::Py_Version };
        match version >> 16 {
            _ if usize::BITS != 64 || sizes != [Some(16), Some(40), Some(4)] => None,
            0x030b => Some(1),
            0x030c | 0x030d => Some(1 << 3),
            _ => None,
        }
    })
}
