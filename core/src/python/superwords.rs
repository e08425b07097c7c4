//! The Python class `Neighbours`.

use super::arrays::array_of;
use super::calls::{CountsError, run};
use super::counting::Counter;
use crate::parallel::interrupt::CoreError;
use crate::train::superwords::Neighbours as Bounds;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, LargeListArray, UInt64Array};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of texts cut between two checks.
const N_UNCHECKED: usize = 1024;

/// Upper bounds of the counts of neighbouring tokens.
#[pyclass(module = "tokenmill._core", frozen)]
pub(super) struct Neighbours {
    n_tokens_known: usize,
    bounds: Mutex<Bounds>,
}

#[pymethods]
impl Neighbours {
    #[new]
    fn new(tokens: Vec<Vec<u8>>, words_max: usize, token_bytes_max: Option<usize>, n_bits: u32) -> Self {
        let bounds = Bounds::new(&tokens, words_max, token_bytes_max.unwrap_or(usize::MAX), n_bits);
        Self { n_tokens_known: tokens.len(), bounds: Mutex::new(bounds) }
    }

    fn note(&self, py: Python<'_>, texts: &Bound<'_, PyAny>, counts: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = self.rows(texts, counts)?;
        run(py, |stop| self.bounds().note(rows.iter(), stop))
    }

    fn n_tokens(&self) -> u64 {
        self.bounds().n_tokens
    }

    fn count_of_nth(&self, py: Python<'_>, n: u64) -> u64 {
        py.detach(|| self.bounds().count_of_nth(n))
    }

    fn count_phrases(
        &self,
        py: Python<'_>,
        texts: &Bound<'_, PyAny>,
        counts: &Bound<'_, PyAny>,
        floor: u64,
        counter: &Counter,
    ) -> PyResult<()> {
        let rows = self.rows(texts, counts)?;
        counter.add_with(py, |stop, add| {
            let bounds = self.bounds();
            for (i, (ids, count)) in rows.iter().enumerate() {
                if i % N_UNCHECKED == 0 {
                    stop.check()?;
                }
                let mut added = Ok(());
                bounds.phrases(ids, floor, |phrase| {
                    if added.is_ok() {
                        added = add(bytemuck::cast_slice(phrase), count);
                    }
                });
                added?;
            }
            Ok(())
        })
    }
}

impl Neighbours {
    fn bounds(&self) -> MutexGuard<'_, Bounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows(&self, texts: &Bound<'_, PyAny>, counts: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let wrong = |what: &str| CountsError::new_err(format!("expected {what}."));
        let (texts, counts) = (array_of(texts)?, array_of(counts)?);
        let texts = texts.as_list_opt::<i64>().ok_or_else(|| wrong("texts as large_list<uint32>"))?.clone();
        let counts = counts.as_primitive_opt::<UInt64Type>().ok_or_else(|| wrong("counts of uint64"))?.clone();
        let ids = texts.values().as_primitive_opt::<UInt32Type>().ok_or_else(|| wrong("ids of uint32"))?;
        if texts.len() != counts.len() {
            return Err(wrong("a count for each text"));
        }
        if let Some(id) = ids.values().iter().find(|&&id| id as usize >= self.n_tokens_known) {
            return Err(CoreError::Counts(format!("id {id} has no token; there are {}.", self.n_tokens_known)).into());
        }
        Ok(Rows { texts, counts })
    }
}

/// Texts as ids, with their counts.
struct Rows {
    texts: LargeListArray,
    counts: UInt64Array,
}

impl Rows {
    fn iter(&self) -> impl Iterator<Item = (&[u32], u64)> {
        let ids = self.texts.values().as_primitive::<UInt32Type>().values();
        let ranges = self.texts.offsets().windows(2).map(|ends| ends[0] as usize..ends[1] as usize);
        ranges.map(|range| &ids[range]).zip(self.counts.values().iter().copied())
    }
}
