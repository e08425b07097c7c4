//! Python's objects of text and bytes, by the calls of its C API themselves.
//!
//! Unsafe because pyo3 has no safe way to them: its own make a panic of a failed allocation, and text that is no UTF-8 in two
//! goes; and have no way from characters to text.

#![allow(unsafe_code)]

use super::symbols::from_kind_and_data;
use crate::chars::{Transcoder, WRITTEN_CHARS};
use crate::memory::out_buffer::Tail;
use crate::memory::pages::Pages;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::cell::Cell;

/// Characters for which a thread keeps room.
const KEPT_CHARS_MAX: usize = 1 << 20;

thread_local! {
    /// Room for the characters of the next text.
    static CHARS: Cell<Tail<u32>> = Cell::default();
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
    let (transcoder, make) = (Transcoder::of_processor()?, from_kind_and_data()?);
    let largest = bytes.iter().copied().fold(0, u8::max);
    if largest < 0x80 {
        return None;
    }
    let text = simdutf8::basic::from_utf8(bytes).ok()?;
    let n_words = bytes.len() + WRITTEN_CHARS;
    let mut room = if n_words > KEPT_CHARS_MAX { Pages::try_new(n_words)?.into() } else { CHARS.take() };
    // The first byte of U+0100 is 0xc4, that of U+10000 is 0xf0.
    let (kind, chars) = match largest {
        ..0xc4 => (1, transcoder.chars::<1>(text, &mut room)),
        0xc4..0xf0 => (2, transcoder.chars::<2>(text, &mut room)),
        _ => (4, transcoder.chars::<4>(text, &mut room)),
    };
    // SAFETY: the characters are so many, of `kind` bytes each, and aligned as those of 32 bits are.
    let made = unsafe {
        let made = make(kind, chars.as_ptr().cast(), (chars.len() / kind as usize) as ffi::Py_ssize_t);
        Bound::from_owned_ptr_or_err(py, made)
    };
    if n_words <= KEPT_CHARS_MAX {
        room.clear(KEPT_CHARS_MAX);
        CHARS.set(room);
    }
    Some(made)
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
