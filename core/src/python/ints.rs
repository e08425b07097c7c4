//! The integers of a list.
//!
//! Unsafe because pyo3's safe way counts references and looks for an error at each call: a list of 1,000 ids took 2.4 to 3.4 times
//! as long to decode by it as when integers were read where CPython keeps them. The calls of the C API here are public.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// The elements as unsigned 32-bit integers, as `list.get_item(i)?.extract()` has them.
#[allow(unsafe_code)]
pub(super) fn u32s_of(list: &Bound<'_, PyList>) -> PyResult<Vec<u32>> {
    let n = list.len();
    let mut all = Vec::with_capacity(n);
    while all.len() < n {
        // SAFETY: the GIL is held, and the list is one. An element is borrowed while nobody's code runs that may change the list:
        // that of an integer runs none. A null pointer, where the list has become shorter, is not looked at.
        let id = unsafe {
            let item = ffi::PyList_GetItem(list.as_ptr(), all.len() as ffi::Py_ssize_t);
            if item.is_null() || ffi::PyLong_CheckExact(item) == 0 { -1 } else { ffi::PyLong_AsLongLong(item) }
        };
        match u32::try_from(id) {
            Ok(id) => all.push(id),
            Err(_) => {
                drop(PyErr::take(list.py()));
                // What is no integer may run code.
                all.push(list.get_item(all.len())?.extract()?);
            }
        }
    }
    Ok(all)
}
