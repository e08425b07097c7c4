//! `train`.

use super::arrays::{batch_of, column_to_pyarrow, offsets, table_of};
use super::calls::{CountsError, long};
use super::texts::{binary_of, slices};
use crate::guard::{self, CoreError, Stop};
use crate::score::NAMES;
use crate::train::{Goal, Lists, Merge, Progress, Start, byte_order, train as learn};
use crate::words::WordsBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, GenericBinaryArray, LargeBinaryArray, LargeListArray, OffsetSizeTrait, RecordBatch, UInt32Array,
    UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3_arrow::PyArray;
use pyo3_arrow::input::AnyArray;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

#[pyfunction]
#[allow(clippy::too_many_arguments)] // plain arguments at the boundary; Goal groups them behind it
#[pyo3(signature = (
    pretokens, counts, tokens, n_first, n_tokens_max, score, pair_count_min, token_bytes_max, forbidden, threads,
    progress, checkpoint_every, checkpoint,
))]
pub(super) fn train<'py>(
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
    let mut keep = |lists: Lists, merges: &[Merge]| {
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
        words.reserve(pretokens.iter().map(n_cells_of).sum());
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
    slices(&binary)
        .into_iter()
        .zip(counts)
        .try_for_each(|(pretoken, count)| words.add(pretoken.iter().map(|&byte| id_of[byte as usize]), count, |_| 1))
}

/// The cells that a chunk of pre-tokens takes at most, where they are bytes.
fn n_cells_of(chunk: &ArrayRef) -> usize {
    fn of<O: OffsetSizeTrait>(binary: &GenericBinaryArray<O>) -> usize {
        let offsets = binary.value_offsets();
        (offsets[binary.len()] - offsets[0]).as_usize() + binary.len()
    }
    match chunk.data_type() {
        DataType::Binary => of(chunk.as_binary::<i32>()),
        DataType::LargeBinary => of(chunk.as_binary::<i64>()),
        _ => 0,
    }
}

fn merges_batch(merges: &[Merge]) -> guard::Result<RecordBatch> {
    let ids = |of: fn(&Merge) -> u32| Arc::new(UInt32Array::from_iter_values(merges.iter().map(of)));
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
