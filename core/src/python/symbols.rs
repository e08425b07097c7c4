//! Functions of CPython that the limited API does not have, by which this module is made for all versions: looked up by name.
//!
//! Unsafe because what has a name is a function of the type that it is said to be.

#![allow(unsafe_code)]

use pyo3::ffi::{Py_ssize_t, PyObject};
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

pub(super) type FromKindAndData = unsafe extern "C" fn(c_int, *const c_void, Py_ssize_t) -> *mut PyObject;

/// `PyUnicode_FromKindAndData`, where this Python has it: public since 3.3.
pub(super) fn from_kind_and_data() -> Option<FromKindAndData> {
    static FOUND: OnceLock<Option<FromKindAndData>> = OnceLock::new();
    // SAFETY: of this name there is no other function; a null pointer is None.
    *FOUND.get_or_init(|| unsafe { std::mem::transmute(found(c"PyUnicode_FromKindAndData")) })
}

/// Whether the interpreter ends, where this Python says so: `Py_IsFinalizing`, public since 3.13, before with another name.
pub(super) fn is_finalizing() -> Option<bool> {
    type IsFinalizing = unsafe extern "C" fn() -> c_int;
    static FOUND: OnceLock<Option<IsFinalizing>> = OnceLock::new();
    // SAFETY: as above; the function reads a number, with and without the GIL.
    unsafe {
        let is_finalizing = *FOUND.get_or_init(|| {
            let names = [c"Py_IsFinalizing", c"_Py_IsFinalizing"];
            std::mem::transmute(names.map(found).into_iter().find(|found| !found.is_null()).unwrap_or_default())
        });
        is_finalizing.map(|is_finalizing| is_finalizing() != 0)
    }
}

#[cfg(unix)]
fn found(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with 0.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

#[cfg(not(unix))]
fn found(_: &CStr) -> *mut c_void {
    std::ptr::null_mut()
}
