//! The Python classes `Counter` and `Merger`.

use super::arrays::{batch_of, batch_to_pyarrow, bytes_column, record_batch_of};
use super::attaching::attached;
use super::calls::run;
use super::texts::Texts;
use crate::count::merge_runs::{CountsBatch, GROUP, Limits, Merge, RUN, Rows, Step, Sum, Totals};
use crate::count::{Counts, Drain};
use crate::parallel::interrupt::{self, CoreError, Stop, guarded};
use crate::split::pattern::Pattern;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, UInt64Array};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// Counts of pre-tokens.
#[pyclass(module = "tokenmill._core", frozen)]
pub(super) struct Counter {
    pattern: Pattern,
    spill: Option<Py<PyAny>>,
    counts: Mutex<Counts>,
    /// The thread whose update holds `counts`. Code that runs at its checks, such as a signal handler, would wait for itself.
    updated_by: Mutex<Option<ThreadId>>,
    /// What the counter is handing out.
    drained: Mutex<Option<Drain>>,
    n_runs: AtomicUsize,
}

#[pymethods]
impl Counter {
    #[new]
    #[pyo3(signature = (steps, threads=1, memory_bytes_max=None, spill=None))]
    fn new(
        steps: Vec<String>,
        threads: usize,
        memory_bytes_max: Option<usize>,
        spill: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            pattern: guarded(|| Pattern::new(&steps))?,
            spill,
            counts: Mutex::new(Counts::new(threads, memory_bytes_max.unwrap_or(usize::MAX))),
            updated_by: Mutex::default(),
            drained: Mutex::default(),
            n_runs: AtomicUsize::new(0),
        })
    }

    fn update(&self, texts: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = texts.py();
        let texts = Texts::new(texts)?;
        let texts = texts.slices()?;
        let raised = Mutex::new(None);
        let spill = |drain: Drain| self.spill(drain, &raised);
        let done = run(py, |stop| {
            let (texts, before) = texts.checked()?;
            let mut counts = self.counts()?;
            let _updating = Updating::new(&self.updated_by);
            counts.update(&self.pattern, texts.len(), |i| texts[i], |i| before[i], &spill, stop)
        });
        match raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => done,
        }
    }

    fn memory_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(py.detach(|| self.counts().map(|counts| counts.memory_bytes()))?)
    }

    #[pyo3(signature = (for_run=false))]
    fn drain<'py>(&self, py: Python<'py>, for_run: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        let batch = run(py, |_| self.next_batch(limits(for_run))?.map(counts_batch).transpose())?;
        batch.map(|batch| batch_to_pyarrow(py, batch)).transpose()
    }

    #[pyo3(name = "forget")]
    fn forget_from_python(&self, py: Python<'_>) {
        py.detach(|| self.forget());
    }
}

impl Counter {
    /// Calls `add_all` with a function that counts a pre-token so many times.
    pub(super) fn add_with(
        &self,
        py: Python<'_>,
        add_all: impl Fn(&Stop<'_>, &mut dyn FnMut(&[u8], u64) -> interrupt::Result<()>) -> interrupt::Result<()> + Sync,
    ) -> PyResult<()> {
        let raised = Mutex::new(None);
        let spill = |drain: Drain| self.spill(drain, &raised);
        let done = run(py, |stop| {
            let mut counts = self.counts()?;
            let _updating = Updating::new(&self.updated_by);
            add_all(stop, &mut |pretoken, n| counts.add(pretoken, n, &spill))
        });
        match raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => done,
        }
    }

    /// Drops the rest of what `next_batch` has begun to hand out.
    pub(super) fn forget(&self) {
        *locked(&self.drained) = None;
    }

    /// The next rows of the counts that were not spilled. None after the last ones; then the counter is empty.
    pub(super) fn next_batch(&self, limits: Limits) -> interrupt::Result<Option<CountsBatch>> {
        let mut drained = locked(&self.drained);
        let drain = match &mut *drained {
            Some(drain) => drain,
            None => drained.insert(self.counts()?.drain(limits)?),
        };
        let batch = drain.next_batch()?;
        if batch.is_none() {
            *drained = None;
        }
        Ok(batch)
    }

    fn counts(&self) -> interrupt::Result<MutexGuard<'_, Counts>> {
        if *locked(&self.updated_by) == Some(std::thread::current().id()) {
            let what =
                "a counter was called in the middle of its own update, as by a signal's handler. Call it afterwards.";
            return Err(CoreError::Counts(what.into()));
        }
        Ok(locked(&self.counts))
    }

    /// Passes a run to Python, batch by batch. An exception from Python is stored in `raised`.
    fn spill(&self, mut drain: Drain, raised: &Mutex<Option<PyErr>>) -> interrupt::Result<()> {
        let Some(spill) = &self.spill else {
            return Err(CoreError::Internal("a full table, and nowhere to spill it".into()));
        };
        let run = self.n_runs.fetch_add(1, Ordering::Relaxed);
        loop {
            let batch = drain.next_batch()?.map(counts_batch).transpose()?;
            let is_last = batch.is_none();
            let said = attached(|py| {
                let batch = batch.map(|batch| batch_to_pyarrow(py, batch)).transpose()?;
                spill.call1(py, (run, batch)).map(|_| ())
            });
            if let Err(error) = said {
                locked(raised).get_or_insert(error);
                return Err(CoreError::Interrupted);
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

/// This thread is updating a counter while this lives.
struct Updating<'u>(&'u Mutex<Option<ThreadId>>);

impl<'u> Updating<'u> {
    fn new(updated_by: &'u Mutex<Option<ThreadId>>) -> Self {
        *locked(updated_by) = Some(std::thread::current().id());
        Self(updated_by)
    }
}

impl Drop for Updating<'_> {
    fn drop(&mut self) {
        *locked(self.0) = None;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn limits(for_run: bool) -> Limits {
    if for_run { RUN } else { GROUP }
}

/// A record batch of counts.
struct CountsRows {
    pretokens: ArrayRef,
    counts: UInt64Array,
}

impl Rows for CountsRows {
    fn n_rows(&self) -> usize {
        self.counts.len()
    }

    fn pretoken(&self, row: usize) -> &[u8] {
        match self.pretokens.as_binary_opt::<i32>() {
            Some(small) => small.value(row),
            None => self.pretokens.as_binary::<i64>().value(row),
        }
    }

    fn count(&self, row: usize) -> u64 {
        self.counts.value(row)
    }
}

/// The sum of sorted runs.
#[pyclass(module = "tokenmill._core")]
pub(super) struct Merger(Mutex<Merge<CountsRows>>);

#[pymethods]
impl Merger {
    #[new]
    #[pyo3(signature = (weights, denominator=1, count_min=1, for_run=false))]
    fn new(weights: Vec<u64>, denominator: u64, count_min: u64, for_run: bool) -> Self {
        Self(Mutex::new(Merge::new(Sum { weights, denominator, count_min }, limits(for_run))))
    }

    #[pyo3(signature = (run, batch=None))]
    fn feed(&self, py: Python<'_>, run: usize, batch: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let rows = batch.map(|batch| {
            let batch = record_batch_of(batch)?;
            let counts = batch.column_by_name("count").and_then(|column| column.as_primitive_opt::<UInt64Type>());
            let counts =
                counts.cloned().ok_or_else(|| PyTypeError::new_err("expected a column \"count\" of uint64."))?;
            Ok::<_, PyErr>(CountsRows { pretokens: bytes_column(&batch, "pretoken")?, counts })
        });
        let rows = rows.transpose()?;
        py.detach(|| guarded(|| locked(&self.0).feed(run, rows))).map_err(PyErr::from)
    }

    #[allow(clippy::type_complexity)] // the type of the Python result, written only here
    fn step<'py>(&self, py: Python<'py>) -> PyResult<(Option<Bound<'py, PyAny>>, Vec<usize>)> {
        let done = py.detach(|| {
            guarded(|| {
                Ok(match locked(&self.0).step()? {
                    Step::Batch(batch) => (Some(counts_batch(batch)?), Vec::new()),
                    Step::Hungry(runs) => (None, runs),
                    Step::Done => (None, Vec::new()),
                })
            })
        });
        let (batch, hungry) = done?;
        Ok((batch.map(|batch| batch_to_pyarrow(py, batch)).transpose()?, hungry))
    }

    fn totals(&self) -> ((u64, u128, u128), (u64, u128, u128)) {
        let of = |totals: Totals| (totals.n_distinct, totals.n_pretokens, totals.n_bytes);
        let (kept, dropped) = locked(&self.0).totals();
        (of(kept), of(dropped))
    }
}

fn counts_schema() -> Arc<Schema> {
    let fields = [("pretoken", DataType::Binary), ("count", DataType::UInt64)];
    Arc::new(Schema::new(fields.map(|(name, kind)| Field::new(name, kind, false)).to_vec()))
}

fn counts_batch(batch: CountsBatch) -> interrupt::Result<RecordBatch> {
    let offsets = OffsetBuffer::new(ScalarBuffer::from_iter(std::iter::once(0).chain(batch.ends)));
    let pretokens = BinaryArray::try_new(offsets, batch.bytes.into(), None)
        .map_err(|error| CoreError::Internal(error.to_string()))?;
    batch_of(counts_schema(), vec![Arc::new(pretokens), Arc::new(UInt64Array::from(batch.counts))])
}
