//! Python's objects of text, bytes and integers, by the calls of its C API themselves.
//!
//! Unsafe because pyo3 has no safe way to them: its own make a panic of a failed allocation, and text that is no UTF-8 in two
//! goes; have no way from characters of 32 bits to text; and count a reference up and down for each integer of a list: 1,000
//! ids decode in 15 us so, and in 7 us here.

#![allow(unsafe_code)]

use crate::prefetch::prefetch;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

/// Integers of a list that are asked of memory at a time.
const N_ASKED: usize = 32;

/// Text of bytes; those that are no UTF-8 become U+FFFD as `bytes.decode(errors="replace")` has it.
pub(super) fn str_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: the pointer and the length are those of a slice, which has at most isize::MAX bytes; what comes back is a new
    // reference, or null with an error set.
    let decode = || unsafe {
        let made =
            ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t, c"replace".as_ptr());
        Bound::from_owned_ptr_or_err(py, made)
    };
    Ok(wide::str_of(py, bytes).unwrap_or_else(decode)?.cast_into()?)
}

/// Text by way of characters of 32 bits: Python's decoder takes text that is mostly beyond ASCII character by character.
#[cfg(all(target_arch = "x86_64", unix))]
mod wide {
    use crate::wide::{ROOM_MORE, wide};
    use pyo3::ffi;
    use pyo3::prelude::*;
    use std::cell::RefCell;

    /// Longer text would need room beyond the processor's caches.
    const BYTES_MAX: usize = 1 << 16;

    thread_local! {
        static ROOM: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }

    /// None where Python's decoder is to be taken.
    pub(super) fn str_of<'py>(py: Python<'py>, bytes: &[u8]) -> Option<PyResult<Bound<'py, PyAny>>> {
        if bytes.len() > BYTES_MAX || n_beyond_ascii(bytes) <= bytes.len() / 16 {
            return None;
        }
        let text = simdutf8::basic::from_utf8(bytes).ok()?;
        ROOM.with_borrow_mut(|room| {
            room.resize(room.len().max(text.len() + ROOM_MORE), 0);
            let chars = wide(text, room)?;
            // SAFETY: wchar_t has 32 bits on these systems; the rest as above.
            Some(unsafe {
                let made = ffi::PyUnicode_FromWideChar(chars.as_ptr().cast(), chars.len() as ffi::Py_ssize_t);
                Bound::from_owned_ptr_or_err(py, made)
            })
        })
    }

    fn n_beyond_ascii(bytes: &[u8]) -> usize {
        let (blocks, rest) = bytes.as_chunks::<64>();
        let of_block = |block: &[u8; 64]| usize::from(block.iter().map(|byte| byte >> 7).sum::<u8>());
        blocks.iter().map(of_block).sum::<usize>() + rest.iter().filter(|byte| !byte.is_ascii()).count()
    }
}

#[cfg(not(all(target_arch = "x86_64", unix)))]
mod wide {
    use pyo3::prelude::*;

    pub(super) fn str_of<'py>(_: Python<'py>, _: &[u8]) -> Option<PyResult<Bound<'py, PyAny>>> {
        None
    }
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
        let items = &mut items[..N_ASKED.min(n - all.len())];
        for (item, i) in items.iter_mut().zip(all.len()..) {
            // SAFETY: null, with an error set, is an index beyond the list's end.
            *item = unsafe { ffi::PyList_GetItem(list.as_ptr(), i as ffi::Py_ssize_t) };
            // SAFETY: what is not null is an object that the list holds.
            unsafe { item.as_ref() }.into_iter().for_each(prefetch);
        }
        for &mut item in items {
            // SAFETY: the module asks for the GIL (`gil_used`), which is held, and PyLong_AsUnsignedLongLong of an int runs
            // nobody's code, so the list holds all items until one of them is no int.
            let value = unsafe {
                if !item.is_null() && ffi::PyLong_CheckExact(item) != 0 {
                    ffi::PyLong_AsUnsignedLongLong(item)
                } else {
                    u64::MAX
                }
            };
            if let Ok(value) = u32::try_from(value) {
                all.push(value);
                continue;
            }
            drop(PyErr::take(list.py()));
            all.push(list.get_item(all.len())?.extract()?);
            break; // that may have run code, which may have changed the list
        }
    }
    Ok(all)
}
