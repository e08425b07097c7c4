//! The Python function `not_nfc`, so that only texts that normalizing may change are looked at in Python. O(bytes), on one thread:
//! some GB/s of ASCII, 0.4 GB/s of other text.

use super::calls::run;
use super::texts::Texts;
use icu_normalizer::ComposingNormalizerBorrowed;
use pyo3::prelude::*;

#[pyfunction]
pub(super) fn not_nfc(py: Python<'_>, texts: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let texts = Texts::new(texts)?;
    let slices = texts.slices()?;
    let nfc = ComposingNormalizerBorrowed::new_nfc();
    run(py, |stop| {
        let mut rows = Vec::new();
        for i in 0..slices.len() {
            stop.check()?;
            let text = slices.get(i)?;
            if !text.is_ascii() && !nfc.is_normalized(text) {
                rows.push(i);
            }
        }
        Ok(rows)
    })
}
