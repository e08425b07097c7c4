//! The texts that Python passes, read in place: lists of str or bytes, and Arrow arrays of strings.

use super::arrays::chunks_of;
use super::calls::CorpusError;
use crate::parallel::interrupt::{self, CoreError};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, GenericBinaryArray, LargeBinaryArray, OffsetSizeTrait};
use arrow_schema::DataType;
use pyo3::exceptions::{PyTypeError, PyUnicodeEncodeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::sync::Arc;

/// An array of texts as binary, for any string type. Nulls and other types are errors.
pub(super) fn binary_of(array: &ArrayRef) -> PyResult<ArrayRef> {
    if let Some(i) = first_null(array) {
        return Err(null(i));
    }
    Ok(match array.data_type() {
        DataType::Utf8 => Arc::new(BinaryArray::from(array.as_string::<i32>().clone())),
        DataType::LargeUtf8 => Arc::new(LargeBinaryArray::from(array.as_string::<i64>().clone())),
        DataType::Utf8View => Arc::new(LargeBinaryArray::from_iter_values(
            array.as_string_view().clone().to_binary_view().iter().flatten(),
        )),
        DataType::Binary | DataType::LargeBinary => array.clone(),
        other => return Err(PyTypeError::new_err(format!("expected an Arrow array of strings; found {other}."))),
    })
}

pub(super) fn first_null(array: &ArrayRef) -> Option<usize> {
    array.nulls().and_then(|nulls| nulls.iter().position(|valid| !valid))
}

pub(super) fn slices(array: &ArrayRef) -> Vec<&[u8]> {
    fn of<O: OffsetSizeTrait>(array: &GenericBinaryArray<O>) -> Vec<&[u8]> {
        (0..array.len()).map(|i| array.value(i)).collect()
    }
    if *array.data_type() == DataType::Binary { of(array.as_binary::<i32>()) } else { of(array.as_binary::<i64>()) }
}

/// The text with number `i`. Arrow strings are checked too, because their producer may not have checked them.
pub(super) fn text_of(bytes: &[u8], i: usize) -> interrupt::Result<&str> {
    simdutf8::compat::from_utf8(bytes).map_err(|error| {
        CoreError::Text(format!("text {i} is not UTF-8 at byte {}; expected UTF-8.", error.valid_up_to()))
    })
}

/// The texts as Python passed them.
pub(super) enum Texts<'py> {
    List(Vec<Bound<'py, PyAny>>),
    Arrays(Vec<ArrayRef>),
}

/// The same texts, read in place. `Checked` texts are known to be UTF-8.
pub(super) enum TextSlices<'t> {
    Checked(Vec<&'t str>),
    Unchecked(Vec<&'t [u8]>),
}

impl<'py> Texts<'py> {
    /// The texts of a list of str or of bytes, or of an Arrow array, chunked or not.
    pub(super) fn new(texts: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = texts.cast::<PyList>() {
            return Ok(Self::List(list.iter().collect()));
        }
        let chunks = chunks_of(texts)?;
        let mut before = 0;
        for chunk in &chunks {
            if let Some(i) = first_null(chunk) {
                return Err(null(before + i));
            }
            before += chunk.len();
        }
        chunks.iter().map(binary_of).collect::<PyResult<_>>().map(Self::Arrays)
    }

    /// The texts as slices. The UTF-8 form of a str is computed at most once, because the str caches it.
    pub(super) fn slices(&self) -> PyResult<TextSlices<'_>> {
        let list = match self {
            Self::Arrays(chunks) => return Ok(TextSlices::Unchecked(chunks.iter().flat_map(slices).collect())),
            Self::List(list) => list,
        };
        if list.first().is_some_and(|one| one.is_instance_of::<PyBytes>()) {
            let bytes = list
                .iter()
                .enumerate()
                .map(|(i, one)| one.cast::<PyBytes>().map(|one| one.as_bytes()).map_err(|_| no_text(one, i)));
            return bytes.collect::<PyResult<_>>().map(TextSlices::Unchecked);
        }
        let mut found = Vec::with_capacity(list.len());
        for (i, one) in list.iter().enumerate() {
            let text = one.cast::<PyString>().map_err(|_| no_text(one, i))?;
            found.push(text.to_str().map_err(|error| surrogate(one.py(), error, i))?);
        }
        Ok(TextSlices::Checked(found))
    }
}

fn null(i: usize) -> PyErr {
    CorpusError::new_err(format!("text {i} is null; expected a string."))
}

fn no_text(one: &Bound<'_, PyAny>, i: usize) -> PyErr {
    if one.is_none() {
        return null(i);
    }
    let kind = one.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    PyTypeError::new_err(format!("expected a list of str or a list of bytes; found {kind} in it."))
}

fn surrogate(py: Python<'_>, error: PyErr, i: usize) -> PyErr {
    if !error.is_instance_of::<PyUnicodeEncodeError>(py) {
        return error;
    }
    let at = error.value(py).getattr("start").and_then(|at| at.extract::<usize>()).unwrap_or_default();
    CorpusError::new_err(format!(
        "text {i}: no Unicode text: lone surrogate at character {at}. Decode the text with errors='replace'."
    ))
}

impl<'t> TextSlices<'t> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Checked(texts) => texts.len(),
            Self::Unchecked(texts) => texts.len(),
        }
    }

    pub(super) fn n_bytes(&self, i: usize) -> usize {
        match self {
            Self::Checked(texts) => texts[i].len(),
            Self::Unchecked(texts) => texts[i].len(),
        }
    }

    /// All texts, and the number of bytes before each, then in all.
    pub(super) fn checked(&self) -> interrupt::Result<(Vec<&'t str>, Vec<usize>)> {
        let mut before = vec![0];
        let mut texts = Vec::with_capacity(self.len());
        for i in 0..self.len() {
            let text = self.get(i)?;
            before.push(before[i] + text.len());
            texts.push(text);
        }
        Ok((texts, before))
    }

    pub(super) fn get(&self, i: usize) -> interrupt::Result<&'t str> {
        match self {
            Self::Checked(texts) => Ok(texts[i]),
            Self::Unchecked(texts) => text_of(texts[i], i),
        }
    }
}
