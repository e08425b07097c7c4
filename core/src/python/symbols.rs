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

#[cfg(unix)]
fn found(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with 0.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

#[cfg(not(unix))]
fn found(_: &CStr) -> *mut c_void {
    std::ptr::null_mut()
}
