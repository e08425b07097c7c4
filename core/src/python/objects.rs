//! Python's objects of text, bytes and integers, by the calls of its C API themselves.
//!
//! Unsafe because pyo3 has no safe way to them: its own make a panic of a failed allocation, and text that is no UTF-8 in two
//! goes; have no way from characters of 32 bits to text; and count a reference up and down for each integer of a list: 1,000
//! ids decode in 15 us so, and in 9 us here; in 7 us since integers are asked of memory early.

#![allow(unsafe_code)]

use crate::prefetch::prefetch;
use crate::utf32::Transcoder;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::cell::Cell;

/// Integers of a list that are asked of memory at a time.
const N_ASKED: usize = 32;
/// Longer text needs characters beyond the processor's own caches, and is as fast by Python's decoder.
const CHARS_BYTES_MAX: usize = 1 << 16;
/// Of text with fewer bytes beyond ASCII, one in so many, Python's decoder makes 2,000 MB/s; with more, 800 to 1,200.
const BYTES_A_WIDE_ONE: usize = 16;

thread_local! {
    /// Room for the characters of the next text.
    static CHARS: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
}

/// Text of bytes; those that are no UTF-8 become U+FFFD as `bytes.decode(errors="replace")` has it.
pub(super) fn str_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    let text = match by_chars(py, bytes) {
        Some(text) => text?,
        // SAFETY: the pointer and the length are those of a slice, which has at most isize::MAX bytes; what comes back is a
        // new reference, or null with an error set.
        None => unsafe {
            let made =
                ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t, c"replace".as_ptr());
            Bound::from_owned_ptr_or_err(py, made)?
        },
    };
    Ok(text.cast_into()?)
}

/// Text by way of its characters; None where that is no faster, or not possible.
fn by_chars<'py>(py: Python<'py>, bytes: &[u8]) -> Option<PyResult<Bound<'py, PyAny>>> {
    if !cfg!(any(target_os = "linux", target_os = "macos")) {
        return None;
    }
    let transcoder = Transcoder::of_processor()?;
    if bytes.len() > CHARS_BYTES_MAX || n_beyond_ascii(bytes) <= bytes.len() / BYTES_A_WIDE_ONE {
        return None;
    }
    let text = simdutf8::basic::from_utf8(bytes).ok()?;
    let mut room = CHARS.take();
    let chars = transcoder.utf32(text, &mut room);
    // SAFETY: as above; wchar_t has 32 bits on these systems.
    let made = unsafe {
        let made = ffi::PyUnicode_FromWideChar(chars.as_ptr().cast(), chars.len() as ffi::Py_ssize_t);
        Bound::from_owned_ptr_or_err(py, made)
    };
    CHARS.set(room);
    Some(made)
}

fn n_beyond_ascii(bytes: &[u8]) -> usize {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let of_block = |block: &[u8; 64]| usize::from(block.iter().map(|byte| byte >> 7).sum::<u8>());
    blocks.iter().map(of_block).sum::<usize>() + rest.iter().filter(|byte| !byte.is_ascii()).count()
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

/// The elements as unsigned 32-bit integers, as `list.get_item(i)?.extract()` has them.
pub(super) fn u32s_of(list: &Bound<'_, PyList>) -> PyResult<Vec<u32>> {
    let n = list.len();
    let mut all = Vec::with_capacity(n);
    let mut items = [std::ptr::null_mut(); N_ASKED];
    while all.len() < n {
        let end = n.min(all.len() + N_ASKED);
        if end <= list.len() {
            let items = &mut items[..end - all.len()];
            for (item, i) in items.iter_mut().zip(all.len()..) {
                // SAFETY: the list has this element, and holds it.
                prefetch(unsafe {
                    *item = ffi::PyList_GetItem(list.as_ptr(), i as ffi::Py_ssize_t);
                    &**item
                });
            }
            for &mut item in items {
                // SAFETY: the GIL is held (the module asks for it: `gil_used`), and none of these calls runs anybody's code
                // before the first that fails, so the list holds all items still.
                let value = unsafe {
                    if ffi::PyLong_CheckExact(item) != 0 { ffi::PyLong_AsUnsignedLongLong(item) } else { u64::MAX }
                };
                let Ok(value) = u32::try_from(value) else { break };
                all.push(value);
            }
            drop(PyErr::take(list.py()));
        }
        // What is no such integer may run code, which may change the list.
        while all.len() < end {
            all.push(list.get_item(all.len())?.extract()?);
        }
    }
    Ok(all)
}
