//! The Python functions `train` and `merge_rows`.

use super::arrays::{batch_of, chunks_of, offsets, table_of};
use super::attaching::{attached, calling};
use super::calls::{CountsError, run_showing};
use super::texts::{binary_of, slices};
use crate::parallel::interrupt::{self, CoreError, Stop, guarded};
use crate::train::score::NAMES;
use crate::train::words::WordsBuilder;
use crate::train::{Goal, Learned, Lists, Merge, Progress, Start, byte_order, train as learn};
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, GenericBinaryArray, LargeListArray, OffsetSizeTrait, RecordBatch, UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use rustc_hash::FxHashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of pre-tokens read between two checks.
const N_UNCHECKED: usize = 4096;
/// The bytes of a merge's record: left, right and token as u32, the count as u64.
const MERGE_BYTES: usize = 20;

#[pyfunction]
#[allow(clippy::too_many_arguments)] // Python passes plain arguments; Goal groups them for the core
#[pyo3(signature = (
    pretokens, counts, tokens, n_first, n_tokens_max, score, pair_count_min, token_bytes_max, forbidden,
    progress, checkpoint_every, checkpoint, words_max=None,
))]
pub(super) fn train<'py>(
    py: Python<'py>,
    pretokens: &Bound<'py, PyAny>,
    counts: &Bound<'_, PyAny>,
    tokens: Vec<Vec<u8>>,
    n_first: usize,
    n_tokens_max: u64,
    score: &str,
    pair_count_min: u64,
    token_bytes_max: Option<usize>,
    forbidden: Vec<Vec<u8>>,
    progress: Option<Py<PyAny>>,
    checkpoint_every: Option<u64>,
    checkpoint: Option<Py<PyAny>>,
    words_max: Option<usize>,
) -> PyResult<Answer<'py>> {
    let source = columns_of(pretokens, counts)?;
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
        forbidden: &forbidden.into_iter().collect(),
        words_max,
        checkpoint_every: checkpoint_every.filter(|_| checkpoint.is_some()),
    };
    let done = Progress::default();
    let show = |py: Python<'_>| match &progress {
        None => Ok(()),
        Some(show) => {
            let now = (done.n_tokens.load(Ordering::Relaxed), done.n_merges.load(Ordering::Relaxed));
            show.call1(py, now).map(|_| ())
        }
    };
    let raised = Mutex::new(None);
    let mut keep = |lists: Lists, merges: &[Merge]| {
        let Some(checkpoint) = &checkpoint else { return Ok(()) };
        let (words, merges) = (lists_batch(lists)?, packed(merges));
        let told = attached(|py| {
            let so_far = (table_of(py, words)?, PyBytes::new(py, &merges));
            checkpoint.call1(py, so_far).map(|_| ())
        });
        told.map_err(|error| {
            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            CoreError::Interrupted
        })
    };
    let work = |stop: &Stop| {
        let words = source.words(&tokens, words_max.is_some(), stop)?;
        learn(Start { words, tokens, n_first }, &goal, &done, stop, &mut keep)
    };
    let learned = run_showing(py, work, Some(&show));
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    calling(py, || show(py))?;
    answer(py, learned?)
}

/// What `train` gives to Python: the packed merges, the number of tokens of the text, and the bytes of the new tokens.
pub(super) type Answer<'py> = (Bound<'py, PyBytes>, u64, Bound<'py, PyList>);

pub(super) fn answer<'py>(py: Python<'py>, learned: Learned) -> PyResult<Answer<'py>> {
    let Learned { merges, bytes, n_bytes, n_text_tokens } = learned;
    let mut rest = &bytes[..];
    let tokens = n_bytes.into_iter().map(|n| {
        let (token, after) = rest.split_at(n as usize);
        rest = after;
        PyBytes::new(py, token)
    });
    let tokens = PyList::new(py, tokens.collect::<Vec<_>>())?;
    Ok((PyBytes::new(py, &packed(&merges)), n_text_tokens, tokens))
}

#[pyfunction]
pub(super) fn merge_rows<'py>(
    py: Python<'py>,
    merges: &[u8],
    ids: Vec<u32>,
    rank: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    let rows = guarded(|| {
        let mut pairs = FxHashSet::default();
        let mut rows = Vec::with_capacity(merges.len() / MERGE_BYTES);
        for (later, record) in merges.chunks_exact(MERGE_BYTES).enumerate().rev() {
            let (parts, _) = record.as_chunks::<4>();
            let [left, right, token] = [0, 1, 2].map(|i| u32::from_le_bytes(parts[i]) as usize);
            if pairs.insert((left, right)) {
                rows.push([ids[left], ids[right], rank + later as u32, ids[token]].map(u32::to_le_bytes));
            }
        }
        Ok(rows.into_iter().rev().flatten().flatten().collect::<Vec<_>>())
    });
    Ok(PyBytes::new(py, &rows?))
}

/// The pre-tokens and their counts, in chunks.
pub(super) struct Source(Vec<ArrayRef>, Vec<ArrayRef>);

impl Source {
    /// The pre-tokens as ids of `tokens`. `one_cell`: each token takes one cell, and not one for each byte.
    pub(super) fn words(self, tokens: &[Vec<u8>], one_cell: bool, stop: &Stop) -> interrupt::Result<WordsBuilder> {
        let Self(pretokens, counts) = self;
        let mut words = WordsBuilder::default();
        words.reserve(pretokens.iter().map(n_cells_of).sum());
        let numbers = counts.iter().flat_map(|chunk| chunk.as_primitive::<UInt64Type>().values());
        let mut numbers = numbers.copied();
        for chunk in &pretokens {
            add_words(&mut words, chunk, tokens, one_cell, &mut numbers, stop)?;
        }
        Ok(words)
    }
}

/// The columns of pre-tokens and counts. Raises an error if they are wrong.
pub(super) fn columns_of(pretokens: &Bound<'_, PyAny>, counts: &Bound<'_, PyAny>) -> PyResult<Source> {
    let (pretokens, counts) = (chunks_of(pretokens)?, chunks_of(counts)?);
    if let Some(chunk) = counts.iter().find(|chunk| *chunk.data_type() != DataType::UInt64) {
        return Err(CountsError::new_err(format!("counts: expected uint64; found {}.", chunk.data_type())));
    }
    let n_of = |chunks: &[ArrayRef]| chunks.iter().map(|chunk| chunk.len()).sum::<usize>();
    if n_of(&pretokens) != n_of(&counts) {
        return Err(CountsError::new_err(format!("{} pre-tokens, but {} counts.", n_of(&pretokens), n_of(&counts))));
    }
    Ok(Source(pretokens, counts))
}

fn add_words(
    words: &mut WordsBuilder,
    chunk: &ArrayRef,
    tokens: &[Vec<u8>],
    one_cell: bool,
    counts: &mut impl Iterator<Item = u64>,
    stop: &Stop,
) -> interrupt::Result<()> {
    let mut counts = counts
        .enumerate()
        .map(|(i, count)| if i % N_UNCHECKED == 0 { stop.check().map(|()| count) } else { Ok(count) });
    if let Some(lists) = chunk.as_list_opt::<i64>() {
        let values = lists.values().as_primitive_opt::<UInt32Type>();
        let values = values.ok_or_else(|| CoreError::Counts("pre-tokens as lists: expected ids of uint32.".into()))?;
        if let Some(id) = values.values().iter().find(|&&id| id as usize >= tokens.len()) {
            return Err(CoreError::Counts(format!("id {id} has no token; there are {}.", tokens.len())));
        }
        return lists.offsets().windows(2).zip(&mut counts).try_for_each(|(ends, count)| {
            let ids = values.values()[ends[0] as usize..ends[1] as usize].iter().copied();
            words.add(ids, count?, |id| if one_cell { 1 } else { tokens[id as usize].len() })
        });
    }
    let id_of = ids_of_bytes();
    let binary = binary_of(chunk).map_err(|error| CoreError::Counts(error.to_string()))?;
    slices(&binary)
        .into_iter()
        .zip(&mut counts)
        .try_for_each(|(pretoken, count)| words.add(pretoken.iter().map(|&byte| id_of[byte as usize]), count?, |_| 1))
}

fn ids_of_bytes() -> [u32; 256] {
    let mut id_of = [0; 256];
    byte_order().iter().zip(0..).for_each(|(&byte, id)| id_of[byte as usize] = id);
    id_of
}

/// The most cells that a chunk of pre-tokens can take, if each token takes one cell.
fn n_cells_of(chunk: &ArrayRef) -> usize {
    fn of<O: OffsetSizeTrait>(binary: &GenericBinaryArray<O>) -> usize {
        let offsets = binary.value_offsets();
        (offsets[binary.len()] - offsets[0]).as_usize() + binary.len()
    }
    match chunk.data_type() {
        DataType::Binary => of(chunk.as_binary::<i32>()),
        DataType::LargeBinary => of(chunk.as_binary::<i64>()),
        DataType::LargeList(_) => chunk.as_list::<i64>().values().len() + chunk.len(),
        _ => 0,
    }
}

/// The merges as plain records, which can be read without an Arrow library.
pub(super) fn packed(merges: &[Merge]) -> Vec<u8> {
    let mut records = Vec::with_capacity(MERGE_BYTES * merges.len());
    for Merge { left, right, token, count } in merges {
        [left, right, token].iter().for_each(|id| records.extend(id.to_le_bytes()));
        records.extend(count.to_le_bytes());
    }
    records
}

fn lists_batch((ids, ends, counts): Lists) -> interrupt::Result<RecordBatch> {
    let item = Arc::new(Field::new("item", DataType::UInt32, false));
    let lists = LargeListArray::try_new(item, offsets(ends), Arc::new(UInt32Array::from(ids)), None)
        .map_err(|error| CoreError::Internal(error.to_string()))?;
    let fields = [("ids", lists.data_type().clone()), ("count", DataType::UInt64)];
    let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, false)).to_vec());
    batch_of(Arc::new(schema), vec![Arc::new(lists), Arc::new(UInt64Array::from(counts))])
}
