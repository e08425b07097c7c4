//! The crate as the Python module `tokenmill._core`: convert, let go of the GIL, call, convert the error.
//!
//! Invariant: no panic and no Rust error type reaches Python; text that is not UTF-8 is refused before the core sees it.

use crate::count::{Counts, Drain};
use crate::encode::{Added, Batch as EncodedBatch, Encoder, Rule, Wanted};
use crate::guard::{self, CoreError, Stop, guarded, panicked};
use crate::lossy::Lossy;
use crate::pattern::{NAMED, Pattern};
use crate::pieces::{in_order, pieces};
use crate::runs::{Batch, GROUP, Limits, Merge, RUN, Rows, Step, Sum, Totals};
use crate::score::NAMES;
use crate::tail::Tail;
use crate::train::{Goal, Lists, Progress, Start, byte_order, train as learn};
use crate::words::WordsBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, GenericBinaryArray, GenericListArray, LargeBinaryArray, LargeListArray,
    OffsetSizeTrait, RecordBatch, UInt32Array, UInt64Array,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use pyo3_arrow::input::AnyArray;
use pyo3_arrow::{PyArray, PyRecordBatch, PyTable};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pyo3::import_exception!(tokenmill.errors, PatternError);
pyo3::import_exception!(tokenmill.errors, CorpusError);
pyo3::import_exception!(tokenmill.errors, TokenizerError);
pyo3::import_exception!(tokenmill.errors, CountsError);
pyo3::import_exception!(tokenmill.errors, InternalError);
pyo3::import_exception!(tokenmill.errors, UnitTimeoutError);

thread_local! {
    /// When calls from this thread are to end.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// How often a long call looks for signals and for its thread's deadline.
const TICK: Duration = Duration::from_millis(50);
/// Less text than this is done in the calling thread, without looking for signals.
const SHORT_BYTES: usize = 1 << 16;
/// Ids that are decoded at a time, and bytes for which a thread keeps room meanwhile.
const PIECE_IDS: usize = 1 << 18;
const PIECE_BYTES_KEPT_MAX: usize = 1 << 24;

impl From<CoreError> for PyErr {
    fn from(error: CoreError) -> Self {
        match error {
            CoreError::Pattern(what) => PatternError::new_err(what),
            CoreError::Text(what) => CorpusError::new_err(what),
            CoreError::Tokenizer(what) => TokenizerError::new_err(what),
            CoreError::Counts(what) => CountsError::new_err(what),
            CoreError::Interrupted => PyKeyboardInterrupt::new_err("the call was stopped"),
            CoreError::Internal(what) => InternalError::new_err(what),
        }
    }
}

/// Runs `work` in a thread of its own without the GIL; this one looks for signals, and shows progress, until it is done.
fn long<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> guard::Result<T> + Send,
    mut tick: impl FnMut() -> PyResult<()> + Send,
) -> PyResult<T> {
    let deadline = DEADLINE.get();
    py.detach(|| {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            let (ended, end) = channel();
            let stop = &stop;
            let thread = scope.spawn(move || {
                let done = guarded(|| work(stop));
                // The receiver lives until this thread is joined.
                let _ = ended.send(());
                done
            });
            let mut raised = None;
            while end.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let seen =
                    in_time(deadline).and_then(|()| Python::attach(|py| py.check_signals())).and_then(|()| tick());
                if let Err(error) = seen {
                    stop.request();
                    raised.get_or_insert(error);
                }
            }
            let done = thread.join().unwrap_or_else(|cause| Err(panicked(&*cause)));
            match raised {
                Some(error) => Err(error),
                None => done.map_err(PyErr::from),
            }
        })
    })
}

fn in_time(deadline: Option<Instant>) -> PyResult<()> {
    match deadline {
        Some(at) if Instant::now() >= at => Err(UnitTimeoutError::new_err("the deadline of this thread is over")),
        _ => Ok(()),
    }
}

/// Runs `work` in the calling thread when it is short, else as `long` does.
fn run<T: Send>(py: Python<'_>, n_bytes: usize, work: impl FnOnce(&Stop) -> guard::Result<T> + Send) -> PyResult<T> {
    in_time(DEADLINE.get())?;
    if n_bytes < SHORT_BYTES {
        return py.detach(|| guarded(|| work(&Stop::default()))).map_err(PyErr::from);
    }
    long(py, work, || Ok(()))
}

/// An array of texts as binary, whatever string type it has. Nulls and other types are errors.
fn binary_of(array: &ArrayRef) -> PyResult<ArrayRef> {
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

fn first_null(array: &ArrayRef) -> Option<usize> {
    array.nulls().and_then(|nulls| nulls.iter().position(|valid| !valid))
}

fn slices(array: &ArrayRef) -> Vec<&[u8]> {
    fn of<O: OffsetSizeTrait>(array: &GenericBinaryArray<O>) -> Vec<&[u8]> {
        (0..array.len()).map(|i| array.value(i)).collect()
    }
    if *array.data_type() == DataType::Binary { of(array.as_binary::<i32>()) } else { of(array.as_binary::<i64>()) }
}

/// The texts of an array, and the bytes before each of them (and in all).
fn texts_of(array: &ArrayRef) -> guard::Result<(Vec<&str>, Vec<usize>)> {
    let mut before = vec![0];
    let mut texts = Vec::with_capacity(array.len());
    for (i, bytes) in slices(array).into_iter().enumerate() {
        let text = text_of(bytes, i)?;
        before.push(before[i] + text.len());
        texts.push(text);
    }
    Ok((texts, before))
}

/// Text `i`. Arrow's strings are checked as well: who made them may not have.
fn text_of(bytes: &[u8], i: usize) -> guard::Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        CoreError::Text(format!("text {i} is not UTF-8 at byte {}; expected UTF-8.", error.valid_up_to()))
    })
}

/// Texts as Python gave them.
enum Texts<'py> {
    List(Vec<Bound<'py, PyAny>>),
    Arrays(Vec<ArrayRef>),
}

/// The same texts, read in place; `Checked` are known to be UTF-8.
enum TextSlices<'t> {
    Checked(Vec<&'t str>),
    Unchecked(Vec<&'t [u8]>),
}

impl<'py> Texts<'py> {
    /// Of a list of str or of bytes, or of an Arrow array or stream.
    fn new(texts: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = texts.cast::<PyList>() {
            return Ok(Self::List(list.iter().collect()));
        }
        let (chunks, _) = texts.extract::<AnyArray>()?.into_chunked_array()?.into_inner();
        let mut before = 0;
        for chunk in &chunks {
            if let Some(i) = first_null(chunk) {
                return Err(null(before + i));
            }
            before += chunk.len();
        }
        chunks.iter().map(binary_of).collect::<PyResult<_>>().map(Self::Arrays)
    }

    /// The UTF-8 that a str keeps beside its characters, or that is its characters: no copy but at the first time.
    fn slices(&self) -> PyResult<TextSlices<'_>> {
        let list = match self {
            Self::Arrays(chunks) => return Ok(TextSlices::Unchecked(chunks.iter().flat_map(slices).collect())),
            Self::List(list) => list,
        };
        if list.first().is_some_and(|one| one.is_instance_of::<PyBytes>()) {
            let bytes = list.iter().map(|one| one.cast::<PyBytes>().map(|one| one.as_bytes()).map_err(|_| mixed(one)));
            return bytes.collect::<PyResult<_>>().map(TextSlices::Unchecked);
        }
        let mut found = Vec::with_capacity(list.len());
        for (i, one) in list.iter().enumerate() {
            let text = one.cast::<PyString>().map_err(|_| if one.is_none() { null(i) } else { mixed(one) })?;
            found.push(text.to_str().map_err(|error| surrogate(one.py(), error, i))?);
        }
        Ok(TextSlices::Checked(found))
    }
}

fn null(i: usize) -> PyErr {
    CorpusError::new_err(format!("text {i} is null; expected a string."))
}

fn mixed(one: &Bound<'_, PyAny>) -> PyErr {
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
    fn len(&self) -> usize {
        match self {
            Self::Checked(texts) => texts.len(),
            Self::Unchecked(texts) => texts.len(),
        }
    }

    fn n_bytes(&self, i: usize) -> usize {
        match self {
            Self::Checked(texts) => texts[i].len(),
            Self::Unchecked(texts) => texts[i].len(),
        }
    }

    fn get(&self, i: usize) -> guard::Result<&'t str> {
        match self {
            Self::Checked(texts) => Ok(texts[i]),
            Self::Unchecked(texts) => text_of(texts[i], i),
        }
    }
}

fn n_bytes_of(array: &ArrayRef) -> usize {
    array.get_array_memory_size()
}

/// Counts of pre-tokens, exact or approximate.
enum Counting {
    Exact(Counts),
    Approximate(Lossy),
}

/// What a counter is handing out.
type Drained = Box<dyn FnMut() -> guard::Result<Option<Batch>> + Send>;

/// Counts of pre-tokens.
#[pyclass(module = "tokenmill._core")]
struct Counter {
    pattern: Pattern,
    spill: Option<Py<PyAny>>,
    counting: Mutex<Counting>,
    drained: Mutex<Option<Drained>>,
    n_runs: AtomicUsize,
}

#[pymethods]
impl Counter {
    #[new]
    #[pyo3(signature = (steps, threads=1, memory_bytes_max=None, spill=None, width=None))]
    fn new(
        steps: Vec<String>,
        threads: usize,
        memory_bytes_max: Option<usize>,
        spill: Option<Py<PyAny>>,
        width: Option<u64>,
    ) -> PyResult<Self> {
        let memory_bytes_max = memory_bytes_max.unwrap_or(usize::MAX);
        let counting = match width {
            None => Counting::Exact(Counts::new(threads, memory_bytes_max)),
            Some(width) => Counting::Approximate(Lossy::new(width, memory_bytes_max)),
        };
        Ok(Self {
            pattern: guarded(|| Pattern::new(&steps))?,
            spill,
            counting: Mutex::new(counting),
            drained: Mutex::default(),
            n_runs: AtomicUsize::new(0),
        })
    }

    fn update(&self, py: Python<'_>, texts: PyArray) -> PyResult<()> {
        let array = binary_of(texts.array())?;
        let raised = Mutex::new(None);
        let spill = |drain: Drain| self.spill(drain, &raised);
        let done = run(py, n_bytes_of(&array), |stop| {
            let (texts, before) = texts_of(&array)?;
            match &mut *locked(&self.counting) {
                Counting::Exact(counts) => {
                    counts.update(&self.pattern, texts.len(), |i| texts[i], |i| before[i], &spill, stop)
                }
                Counting::Approximate(lossy) => lossy.update(&self.pattern, texts.into_iter(), stop),
            }
        });
        match raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => done,
        }
    }

    fn memory_bytes(&self, py: Python<'_>) -> usize {
        py.detach(|| match &*locked(&self.counting) {
            Counting::Exact(counts) => counts.memory_bytes(),
            Counting::Approximate(lossy) => lossy.memory_bytes(),
        })
    }

    fn missed_max(&self, py: Python<'_>) -> u64 {
        py.detach(|| match &*locked(&self.counting) {
            Counting::Exact(_) => 0,
            Counting::Approximate(lossy) => lossy.missed_max(),
        })
    }

    #[pyo3(signature = (for_run=false))]
    fn drain<'py>(&self, py: Python<'py>, for_run: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        let batch = long(
            py,
            |_| {
                let mut drained = locked(&self.drained);
                let next = match &mut *drained {
                    Some(next) => next,
                    None => drained.insert(match &mut *locked(&self.counting) {
                        Counting::Exact(counts) => {
                            let mut drain = counts.drain(limits(for_run))?;
                            Box::new(move || drain.next_batch())
                        }
                        Counting::Approximate(lossy) => {
                            let mut drain = lossy.drain(limits(for_run))?;
                            Box::new(move || drain.next_batch())
                        }
                    }),
                };
                let batch = next()?;
                if batch.is_none() {
                    *drained = None;
                }
                batch.map(counts_batch).transpose()
            },
            || Ok(()),
        )?;
        batch.map(|batch| PyRecordBatch::new(batch).into_pyarrow(py)).transpose()
    }
}

impl Counter {
    /// Hands a run over to Python, batch for batch; what Python raises is kept in `raised`.
    fn spill(&self, mut drain: Drain, raised: &Mutex<Option<PyErr>>) -> guard::Result<()> {
        let Some(spill) = &self.spill else {
            return Err(CoreError::Internal("a full table, and nowhere to spill it".into()));
        };
        let run = self.n_runs.fetch_add(1, Ordering::Relaxed);
        loop {
            let batch = drain.next_batch()?.map(counts_batch).transpose()?;
            let is_last = batch.is_none();
            let said = Python::attach(|py| {
                let batch = batch.map(|batch| PyRecordBatch::new(batch).into_pyarrow(py)).transpose()?;
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

/// Sorted runs of counts, added up.
#[pyclass(module = "tokenmill._core")]
struct Merger(Mutex<Merge<CountsRows>>);

#[pymethods]
impl Merger {
    #[new]
    #[pyo3(signature = (weights, denominator=1, count_min=1, for_run=false))]
    fn new(weights: Vec<u64>, denominator: u64, count_min: u64, for_run: bool) -> Self {
        Self(Mutex::new(Merge::new(Sum { weights, denominator, count_min }, limits(for_run))))
    }

    #[pyo3(signature = (run, batch=None))]
    fn feed(&self, py: Python<'_>, run: usize, batch: Option<PyRecordBatch>) -> PyResult<()> {
        let rows = batch.map(PyRecordBatch::into_inner).map(|batch| {
            let counts = batch.column_by_name("count").and_then(|column| column.as_primitive_opt::<UInt64Type>());
            let counts =
                counts.cloned().ok_or_else(|| PyTypeError::new_err("expected a column \"count\" of uint64."))?;
            Ok::<_, PyErr>(CountsRows { pretokens: bytes_column(&batch, "pretoken")?, counts })
        });
        let rows = rows.transpose()?;
        py.detach(|| guarded(|| locked(&self.0).feed(run, rows))).map_err(PyErr::from)
    }

    #[allow(clippy::type_complexity)] // what Python gets, written once
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
        Ok((batch.map(|batch| PyRecordBatch::new(batch).into_pyarrow(py)).transpose()?, hungry))
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

fn counts_batch(batch: Batch) -> guard::Result<RecordBatch> {
    let offsets = OffsetBuffer::new(ScalarBuffer::from_iter(std::iter::once(0).chain(batch.ends)));
    let pretokens = BinaryArray::try_new(offsets, batch.bytes.into(), None)
        .map_err(|error| CoreError::Internal(error.to_string()))?;
    batch_of(counts_schema(), vec![Arc::new(pretokens), Arc::new(UInt64Array::from(batch.counts))])
}

fn batch_of(schema: Arc<Schema>, columns: Vec<ArrayRef>) -> guard::Result<RecordBatch> {
    RecordBatch::try_new(schema, columns).map_err(|error| CoreError::Internal(error.to_string()))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)] // plain arguments at the boundary; Goal groups them behind it
#[pyo3(signature = (
    pretokens, counts, tokens, n_first, n_tokens_max, score, pair_count_min, token_bytes_max, forbidden, threads,
    progress, checkpoint_every, checkpoint,
))]
fn train<'py>(
    py: Python<'py>,
    pretokens: AnyArray,
    counts: AnyArray,
    tokens: PyArray,
    n_first: usize,
    n_tokens_max: u64,
    score: &str,
    pair_count_min: u64,
    token_bytes_max: Option<usize>,
    forbidden: Vec<Vec<u8>>,
    threads: usize,
    progress: Option<Py<PyAny>>,
    checkpoint_every: Option<u64>,
    checkpoint: Option<Py<PyAny>>,
) -> PyResult<(Bound<'py, PyAny>, u64, Bound<'py, PyAny>)> {
    let (pretokens, _) = pretokens.into_chunked_array()?.into_inner();
    let (counts, _) = counts.into_chunked_array()?.into_inner();
    let tokens = binary_of(tokens.array())?;
    let Some((_, score)) = NAMES.into_iter().find(|(name, _)| *name == score) else {
        return Err(CountsError::new_err(format!(
            "score: found {score:?}; expected one of {:?}.",
            NAMES.map(|(name, _)| name)
        )));
    };
    let goal = Goal {
        n_tokens_max,
        score,
        pair_count_min,
        token_bytes_max: token_bytes_max.unwrap_or(usize::MAX),
        forbidden: &forbidden,
        threads,
        checkpoint_every: checkpoint_every.filter(|_| checkpoint.is_some()),
    };
    let done = Progress::default();
    let show = || match &progress {
        None => Ok(()),
        Some(show) => {
            let now = (done.n_tokens.load(Ordering::Relaxed), done.n_merges.load(Ordering::Relaxed));
            Python::attach(|py| show.call1(py, now).map(|_| ()))
        }
    };
    let raised = Mutex::new(None);
    let mut keep = |lists: Lists, merges: &[crate::train::Merge]| {
        let Some(checkpoint) = &checkpoint else { return Ok(()) };
        let (words, merges) = (lists_batch(lists)?, merges_batch(merges)?);
        let told = Python::attach(|py| {
            let tables = (table_of(py, words)?, table_of(py, merges)?);
            checkpoint.call1(py, tables).map(|_| ())
        });
        told.map_err(|error| {
            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            CoreError::Interrupted
        })
    };
    let work = |stop: &Stop| {
        let tokens: Vec<Vec<u8>> = slices(&tokens).into_iter().map(<[u8]>::to_vec).collect();
        let mut words = WordsBuilder::default();
        let mut numbers = counts.iter().flat_map(|chunk| chunk.as_primitive::<UInt64Type>().values().iter().copied());
        for chunk in &pretokens {
            add_words(&mut words, chunk, &tokens, &mut numbers)?;
        }
        let learned = learn(Start { words, tokens, n_first }, &goal, &done, stop, &mut keep)?;
        let offsets = OffsetBuffer::from_lengths(learned.n_bytes.into_iter().map(|n| n as usize));
        let tokens = LargeBinaryArray::new(offsets, learned.bytes.into(), None);
        Ok((merges_batch(&learned.merges)?, learned.n_text_tokens, tokens))
    };
    check_training(&pretokens, &counts)?;
    let learned = long(py, work, show);
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    show()?;
    let (merges, n_text_tokens, tokens) = learned?;
    Ok((table_of(py, merges)?, n_text_tokens, column_to_pyarrow(py, Arc::new(tokens))?))
}

/// Raises what is wrong with the columns of counts.
fn check_training(pretokens: &[ArrayRef], counts: &[ArrayRef]) -> PyResult<()> {
    if let Some(chunk) = counts.iter().find(|chunk| *chunk.data_type() != DataType::UInt64) {
        return Err(CountsError::new_err(format!("counts: expected uint64; found {}.", chunk.data_type())));
    }
    let n_of = |chunks: &[ArrayRef]| chunks.iter().map(|chunk| chunk.len()).sum::<usize>();
    if n_of(pretokens) != n_of(counts) {
        return Err(CountsError::new_err(format!("{} pre-tokens, but {} counts.", n_of(pretokens), n_of(counts))));
    }
    Ok(())
}

/// Adds pre-tokens, which come as bytes (then the first 256 tokens are the bytes) or as lists of ids.
fn add_words(
    words: &mut WordsBuilder,
    chunk: &ArrayRef,
    tokens: &[Vec<u8>],
    counts: &mut impl Iterator<Item = u64>,
) -> guard::Result<()> {
    if let Some(lists) = chunk.as_list_opt::<i64>() {
        let values = lists.values().as_primitive_opt::<UInt32Type>();
        let values = values.ok_or_else(|| CoreError::Counts("pre-tokens as lists: expected ids of uint32.".into()))?;
        if let Some(id) = values.values().iter().find(|&&id| id as usize >= tokens.len()) {
            return Err(CoreError::Counts(format!("id {id} has no token; there are {}.", tokens.len())));
        }
        return lists.offsets().windows(2).zip(counts).try_for_each(|(ends, count)| {
            let ids = values.values()[ends[0] as usize..ends[1] as usize].iter().copied();
            words.add(ids, count, |id| tokens[id as usize].len())
        });
    }
    let mut id_of = [0_u32; 256];
    byte_order().iter().zip(0..).for_each(|(&byte, id)| id_of[byte as usize] = id);
    let binary = binary_of(chunk).map_err(|error| CoreError::Counts(error.to_string()))?;
    let pretokens = slices(&binary);
    words.reserve(pretokens.iter().map(|pretoken| pretoken.len() + 1).sum());
    pretokens
        .into_iter()
        .zip(counts)
        .try_for_each(|(pretoken, count)| words.add(pretoken.iter().map(|&byte| id_of[byte as usize]), count, |_| 1))
}

fn merges_batch(merges: &[crate::train::Merge]) -> guard::Result<RecordBatch> {
    let ids = |of: fn(&crate::train::Merge) -> u32| Arc::new(UInt32Array::from_iter_values(merges.iter().map(of)));
    let columns: Vec<ArrayRef> = vec![
        ids(|one| one.left),
        ids(|one| one.right),
        ids(|one| one.token),
        Arc::new(UInt64Array::from_iter_values(merges.iter().map(|one| one.count))),
    ];
    let fields = ["left", "right", "token"].map(|name| Field::new(name, DataType::UInt32, false));
    let count = Field::new("count", DataType::UInt64, false);
    batch_of(Arc::new(Schema::new([&fields[..], &[count]].concat())), columns)
}

fn lists_batch((ids, ends, counts): Lists) -> guard::Result<RecordBatch> {
    let item = Arc::new(Field::new("item", DataType::UInt32, false));
    let lists = LargeListArray::try_new(item, offsets(ends), Arc::new(UInt32Array::from(ids)), None)
        .map_err(|error| CoreError::Internal(error.to_string()))?;
    let fields = [("ids", lists.data_type().clone()), ("count", DataType::UInt64)];
    let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, false)).to_vec());
    batch_of(Arc::new(schema), vec![Arc::new(lists), Arc::new(UInt64Array::from(counts))])
}

fn table_of(py: Python<'_>, batch: RecordBatch) -> PyResult<Bound<'_, PyAny>> {
    let schema = batch.schema();
    PyTable::try_new(vec![batch], schema)?.into_pyarrow(py)
}

/// A column of a record batch, as unsigned 32-bit integers.
fn ids_column(batch: &RecordBatch, name: &str) -> PyResult<UInt32Array> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<UInt32Type>());
    column.cloned().ok_or_else(|| PyTypeError::new_err(format!("expected a column {name:?} of uint32.")))
}

fn bytes_column(batch: &RecordBatch, name: &str) -> PyResult<ArrayRef> {
    let column =
        batch.column_by_name(name).ok_or_else(|| PyTypeError::new_err(format!("expected a column {name:?}.")))?;
    binary_of(column)
}

/// A vocabulary, ready to encode and decode.
#[pyclass(module = "tokenmill._core", name = "Encoder")]
struct PyEncoder(Encoder);

#[pymethods]
impl PyEncoder {
    #[new]
    fn new(
        py: Python<'_>,
        steps: Vec<String>,
        vocabulary: PyRecordBatch,
        merges: PyRecordBatch,
        added: PyRecordBatch,
        ignore_merges: bool,
    ) -> PyResult<Self> {
        let (vocabulary, merges, added) = (vocabulary.into_inner(), merges.into_inner(), added.into_inner());
        let (ids, tokens) = (ids_column(&vocabulary, "id")?, bytes_column(&vocabulary, "token")?);
        let [left, right, rank, token] = ["left", "right", "rank", "token"].map(|name| ids_column(&merges, name));
        let (left, right, rank, token) = (left?, right?, rank?, token?);
        let (added_ids, added_tokens) = (ids_column(&added, "id")?, bytes_column(&added, "token")?);
        let in_text = added
            .column_by_name("in_text")
            .and_then(|column| column.as_boolean_opt())
            .cloned()
            .ok_or_else(|| PyTypeError::new_err("expected a column \"in_text\" of bool."))?;
        let work = |_: &Stop| {
            let vocabulary: Vec<_> = ids.values().iter().copied().zip(slices(&tokens)).collect();
            let rules: Vec<_> = (0..left.len())
                .map(|i| Rule {
                    left: left.value(i),
                    right: right.value(i),
                    rank: rank.value(i),
                    token: token.value(i),
                })
                .collect();
            let added: Vec<_> = added_ids
                .values()
                .iter()
                .zip(slices(&added_tokens))
                .enumerate()
                .map(|(i, (&id, bytes))| Added { id, bytes, in_text: in_text.value(i) })
                .collect();
            Encoder::new(Pattern::new(&steps)?, &vocabulary, &rules, &added, ignore_merges)
        };
        Ok(Self(long(py, work, || Ok(()))?))
    }

    fn limit_cache(&mut self, bytes_max: usize) {
        self.0.limit_cache(bytes_max);
    }

    fn warm(&self, py: Python<'_>, pretokens: AnyArray) -> PyResult<()> {
        let (pretokens, _) = pretokens.into_chunked_array()?.into_inner();
        let pretokens = pretokens.iter().map(binary_of).collect::<PyResult<Vec<_>>>()?;
        long(
            py,
            |stop| {
                let pretokens: Vec<&[u8]> = pretokens.iter().flat_map(slices).collect();
                self.0.warm(&pretokens, stop)
            },
            || Ok(()),
        )
    }

    fn encode(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        run(py, text.len(), |stop| self.0.encode(text, stop))
    }

    #[pyo3(signature = (texts, threads, end_id=None))]
    fn encode_batch<'py>(
        &self,
        texts: &Bound<'py, PyAny>,
        threads: usize,
        end_id: Option<u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = self.batch(texts, Wanted { end_id, ids: true, starts: false }, threads)?;
        lists_to_pyarrow(texts.py(), &offsets(batch.ends), Arc::new(UInt32Array::from(batch.ids)))
    }

    #[pyo3(signature = (texts, threads, end_id=None))]
    fn encode_batch_with_starts<'py>(
        &self,
        texts: &Bound<'py, PyAny>,
        threads: usize,
        end_id: Option<u32>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let batch = self.batch(texts, Wanted { end_id, ids: true, starts: true }, threads)?;
        let ends = offsets(batch.ends);
        let ids = lists_to_pyarrow(texts.py(), &ends, Arc::new(UInt32Array::from(batch.ids)))?;
        Ok((ids, lists_to_pyarrow(texts.py(), &ends, Arc::new(UInt64Array::from(batch.starts)))?))
    }

    fn count_tokens<'py>(&self, texts: &Bound<'py, PyAny>, threads: usize) -> PyResult<Bound<'py, PyAny>> {
        let ends = self.batch(texts, Wanted::default(), threads)?.ends;
        let counts = ends.iter().scan(0, |before, &end| Some((end - std::mem::replace(before, end)) as u64));
        column_to_pyarrow(texts.py(), Arc::new(UInt64Array::from_iter_values(counts)))
    }

    fn decode_bytes<'py>(&self, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let py = ids.py();
        if let Ok(list) = ids.cast::<PyList>() {
            let ids = list.iter().map(|id| id.extract::<u32>()).collect::<PyResult<Vec<_>>>()?;
            return self.decoded(py, &ids);
        }
        let array = ids.extract::<PyArray>()?;
        let ids = run(py, SHORT_BYTES, |_| Ok(ids_of(array.array())?.into_owned()))?;
        self.decoded(py, &ids)
    }

    fn decode_batch<'py>(&self, py: Python<'py>, ids: PyArray, threads: usize) -> PyResult<Bound<'py, PyAny>> {
        let array = ids.array().clone();
        let decoded = run(py, n_bytes_of(&array), |stop| match array.data_type() {
            DataType::List(_) => decode_lists(&self.0, array.as_list::<i32>(), threads, stop),
            DataType::LargeList(_) => decode_lists(&self.0, array.as_list::<i64>(), threads, stop),
            other => Err(CoreError::Tokenizer(format!("expected an Arrow array of lists of ids; found {other}."))),
        })?;
        column_to_pyarrow(py, Arc::new(decoded))
    }
}

impl PyEncoder {
    fn batch(&self, texts: &Bound<'_, PyAny>, wanted: Wanted, threads: usize) -> PyResult<EncodedBatch> {
        let py = texts.py();
        let texts = Texts::new(texts)?;
        let texts = texts.slices()?;
        let n_bytes = (0..texts.len()).map(|i| texts.n_bytes(i)).sum();
        run(py, n_bytes, |stop| {
            self.0.encode_batch(texts.len(), |i| texts.get(i), |i| texts.n_bytes(i), wanted, threads, stop)
        })
    }

    fn decoded<'py>(&self, py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = run(py, ids.len(), |stop| {
            let mut bytes = Tail::default();
            for some in ids.chunks(PIECE_IDS) {
                stop.check()?;
                self.0.decoder.decode(some.iter().copied(), &mut bytes)?;
            }
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, bytes.as_slice()))
    }
}

/// The ids of an array of uint16 or uint32; those of 32 bits are read in place.
fn ids_of(values: &ArrayRef) -> guard::Result<Cow<'_, [u32]>> {
    if values.null_count() > 0 {
        return Err(CoreError::Tokenizer("expected ids without nulls; found a null.".to_string()));
    }
    if let Some(wide) = values.as_primitive_opt::<UInt32Type>() {
        return Ok(Cow::Borrowed(wide.values()));
    }
    if let Some(narrow) = values.as_primitive_opt::<UInt16Type>() {
        return Ok(Cow::Owned(narrow.values().iter().map(|&id| u32::from(id)).collect()));
    }
    Err(CoreError::Tokenizer(format!("expected ids of uint16 or uint32; found {}.", values.data_type())))
}

fn decode_lists<O: OffsetSizeTrait>(
    encoder: &Encoder,
    lists: &GenericListArray<O>,
    threads: usize,
    stop: &Stop,
) -> guard::Result<LargeBinaryArray> {
    if lists.null_count() > 0 {
        return Err(CoreError::Tokenizer("expected lists of ids without nulls; found a null.".to_string()));
    }
    let ids = ids_of(lists.values())?;
    let at = |i: usize| lists.value_offsets()[i].as_usize();
    let work = |(): &mut (), part: Range<usize>, (bytes, ends): &mut (Tail<u8>, Vec<i64>)| {
        stop.check()?;
        for i in part {
            encoder.decoder.decode(ids[at(i)..at(i + 1)].iter().copied(), bytes).map_err(|error| match error {
                CoreError::Tokenizer(what) => CoreError::Tokenizer(format!("list {i}: {what}")),
                other => other,
            })?;
            ends.push(bytes.n() as i64);
        }
        Ok(())
    };
    let (mut all, mut all_ends) = (Vec::new(), Vec::with_capacity(lists.len()));
    let take = |(bytes, ends): &mut (Tail<u8>, Vec<i64>)| {
        let before = all.len() as i64;
        all_ends.extend(ends.drain(..).map(|end| end + before));
        all.extend_from_slice(bytes.as_slice());
        bytes.clear(PIECE_BYTES_KEPT_MAX);
    };
    in_order(&pieces(lists.len(), PIECE_IDS, |i| at(i + 1) - at(i)), threads, || Ok(()), |()| (), work, take)?;
    LargeBinaryArray::try_new(offsets(all_ends), all.into(), None)
        .map_err(|error| CoreError::Internal(error.to_string()))
}

fn lists_to_pyarrow<'py>(py: Python<'py>, ends: &OffsetBuffer<i64>, values: ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    let item = Arc::new(Field::new("item", values.data_type().clone(), false));
    let lists = LargeListArray::try_new(item, ends.clone(), values, None)
        .map_err(|error| CoreError::Internal(error.to_string()))?;
    column_to_pyarrow(py, Arc::new(lists))
}

/// Offsets from the ends of all elements: 0 first.
fn offsets(ends: Vec<i64>) -> OffsetBuffer<i64> {
    OffsetBuffer::new(ScalarBuffer::from_iter(std::iter::once(0).chain(ends)))
}

fn column_to_pyarrow(py: Python<'_>, column: ArrayRef) -> PyResult<Bound<'_, PyAny>> {
    let schema = Arc::new(Schema::new(vec![Field::new("column", column.data_type().clone(), false)]));
    let batch = batch_of(schema, vec![column])?;
    PyRecordBatch::new(batch).into_pyarrow(py)?.call_method1("column", (0,))
}

#[pyfunction]
fn patterns() -> BTreeMap<&'static str, Vec<&'static str>> {
    NAMED.iter().map(|(name, steps)| (*name, steps.to_vec())).collect()
}

#[pyfunction(name = "byte_order")]
fn byte_order_py(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &byte_order())
}

#[pyfunction]
#[pyo3(signature = (seconds))]
fn deadline(seconds: Option<f64>) -> PyResult<()> {
    let time = seconds.map(Duration::try_from_secs_f64).transpose();
    let time = time.map_err(|error| PyValueError::new_err(format!("deadline: {error}")))?;
    DEADLINE.set(time.and_then(|time| Instant::now().checked_add(time)));
    Ok(())
}

#[pyfunction]
fn interrupt(on: bool) {
    guard::interrupt(on);
}

#[pyfunction]
fn split(py: Python<'_>, steps: Vec<String>, text: &str) -> PyResult<Vec<String>> {
    run(py, text.len(), |stop| {
        let mut pieces = Vec::new();
        Pattern::new(&steps)?.split(text, stop, &mut |piece| {
            pieces.push(piece.to_string());
            Ok(())
        })?;
        Ok(pieces)
    })
}

#[pyfunction]
fn splitter(py: Python<'_>, steps: Vec<String>) -> PyResult<&'static str> {
    run(py, usize::MAX, |_| Ok(Pattern::new(&steps)?.engine()))
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SOURCE_HASH", env!("TOKENMILL_SOURCE_HASH"))?;
    module.add_class::<Counter>()?;
    module.add_class::<Merger>()?;
    module.add_class::<PyEncoder>()?;
    module.add_function(wrap_pyfunction!(patterns, module)?)?;
    module.add_function(wrap_pyfunction!(byte_order_py, module)?)?;
    module.add_function(wrap_pyfunction!(deadline, module)?)?;
    module.add_function(wrap_pyfunction!(interrupt, module)?)?;
    module.add_function(wrap_pyfunction!(split, module)?)?;
    module.add_function(wrap_pyfunction!(splitter, module)?)?;
    module.add_function(wrap_pyfunction!(train, module)?)
}
