//! The Python class `Encoder`.

use super::arrays::{
    array_of, bytes_column, chunks_of, column_to_pyarrow, ids_column, lists_to_pyarrow, offsets, record_batch_of,
};
use super::calls::run;
use super::ids::{IdSlice, id_array, ids_of};
use super::ints::u32s_of;
use super::texts::{Texts, binary_of, first_null, slices};
use crate::encode::batch::{EncodedBatch, Wanted};
use crate::encode::id_block::Ids;
use crate::encode::{Added, Encoder, Rule};
use crate::memory::out_buffer::Tail;
use crate::memory::pages::Pages;
use crate::parallel::in_order::{Turn, in_order, pieces};
use crate::parallel::interrupt::{self, CoreError, Stop};
use crate::split::pattern::Pattern;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericListArray, LargeBinaryArray, OffsetSizeTrait, UInt32Array, UInt64Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::DataType;
use bytes::Bytes;
use pyo3::exceptions::{PyTypeError, PyUnicodeDecodeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// The number of ids decoded at a time. PIECE_BYTES_KEPT_MAX: the memory that a thread keeps for the bytes of its pieces.
const PIECE_IDS: usize = 1 << 18;
const PIECE_BYTES_KEPT_MAX: usize = 1 << 24;

/// A longer buffer than this is freed after decoding a text.
const TEXT_BYTES_KEPT_MAX: usize = 1 << 20;

thread_local! {
    /// The buffer for the bytes of the next text.
    static BYTES: Cell<Tail<u8>> = Cell::default();
}

/// A vocabulary, ready to encode and decode.
#[pyclass(module = "tokenmill._core", name = "Encoder")]
pub(super) struct PyEncoder(Encoder);

#[pymethods]
impl PyEncoder {
    #[new]
    #[pyo3(signature = (steps, vocabulary, merges, added, ignore_merges, fallback=None))]
    fn new(
        py: Python<'_>,
        steps: Vec<String>,
        vocabulary: &Bound<'_, PyAny>,
        merges: &Bound<'_, PyAny>,
        added: &Bound<'_, PyAny>,
        ignore_merges: bool,
        fallback: Option<[u32; 256]>,
    ) -> PyResult<Self> {
        let (vocabulary, merges, added) =
            (record_batch_of(vocabulary)?, record_batch_of(merges)?, record_batch_of(added)?);
        let (ids, tokens) = (ids_column(&vocabulary, "id")?, bytes_column(&vocabulary, "token")?);
        let [left, right, rank, token] = ["left", "right", "rank", "token"].map(|name| ids_column(&merges, name));
        let (left, right, rank, token) = (left?, right?, rank?, token?);
        let (added_ids, added_tokens) = (ids_column(&added, "id")?, bytes_column(&added, "token")?);
        let in_text = added
            .column_by_name("in_text")
            .and_then(|column| column.as_boolean_opt())
            .cloned()
            .ok_or_else(|| PyTypeError::new_err("expected a column \"in_text\" of bool."))?;
        let work = |stop: &Stop| {
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
            Encoder::new(Pattern::new(&steps)?, &vocabulary, &rules, &added, ignore_merges, fallback.as_ref(), stop)
        };
        Ok(Self(run(py, work)?))
    }

    fn finding(&self, py: Python<'_>, in_text: Vec<u32>) -> PyResult<Self> {
        Ok(Self(run(py, |_| self.0.finding(&in_text))?))
    }

    fn limit_cache(&mut self, bytes_max: usize) {
        self.0.limit_cache(bytes_max);
    }

    fn with_own_cache(&self) -> Self {
        Self(self.0.with_own_cache())
    }

    fn warm(&self, py: Python<'_>, pretokens: &Bound<'_, PyAny>) -> PyResult<()> {
        let pretokens = chunks_of(pretokens)?;
        let pretokens = pretokens.iter().map(binary_of).collect::<PyResult<Vec<_>>>()?;
        run(py, |stop| {
            let pretokens: Vec<&[u8]> = pretokens.iter().flat_map(slices).collect();
            self.0.warm(&pretokens, stop)
        })
    }

    fn encode(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        run(py, |stop| self.0.encode(text, stop))
    }

    #[pyo3(signature = (texts, threads, begin_id=None, end_id=None))]
    fn encode_batch<'py>(
        &self,
        texts: &Bound<'py, PyAny>,
        threads: usize,
        begin_id: Option<u32>,
        end_id: Option<u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = self.batch(texts, Wanted { begin_id, end_id, ids: true, starts: false }, threads)?;
        lists_to_pyarrow(texts.py(), &offsets(batch.ends), ids_array(batch.ids))
    }

    #[pyo3(signature = (texts, threads, begin_id=None, end_id=None))]
    fn encode_batch_with_starts<'py>(
        &self,
        texts: &Bound<'py, PyAny>,
        threads: usize,
        begin_id: Option<u32>,
        end_id: Option<u32>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let batch = self.batch(texts, Wanted { begin_id, end_id, ids: true, starts: true }, threads)?;
        let ends = offsets(batch.ends);
        let ids = lists_to_pyarrow(texts.py(), &ends, ids_array(batch.ids))?;
        Ok((ids, lists_to_pyarrow(texts.py(), &ends, Arc::new(UInt64Array::from(batch.starts)))?))
    }

    fn count_tokens<'py>(&self, texts: &Bound<'py, PyAny>, threads: usize) -> PyResult<Bound<'py, PyAny>> {
        let ends = self.batch(texts, Wanted::default(), threads)?.ends;
        let counts = ends.iter().scan(0, |before, &end| Some((end - std::mem::replace(before, end)) as u64));
        column_to_pyarrow(texts.py(), Arc::new(UInt64Array::from_iter_values(counts)))
    }

    fn decode<'py>(&self, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
        self.decoded(ids, str_of)
    }

    fn decode_bytes<'py>(&self, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        self.decoded(ids, bytes_of)
    }

    fn decode_batch<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'_, PyAny>,
        threads: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = array_of(ids)?;
        let decoded = run(py, |stop| match array.data_type() {
            DataType::List(_) => decode_lists(&self.0, array.as_list::<i32>(), threads, stop),
            DataType::LargeList(_) => decode_lists(&self.0, array.as_list::<i64>(), threads, stop),
            other => Err(CoreError::Tokenizer(format!("expected an Arrow array of lists of ids; found {other}."))),
        })?;
        column_to_pyarrow(py, Arc::new(decoded))
    }

    fn decodes_to(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        texts: &Bound<'_, PyAny>,
        begin: &[u8],
        end: &[u8],
    ) -> PyResult<bool> {
        let (ids, texts) = (array_of(ids)?, binary_of(&array_of(texts)?)?);
        run(py, |stop| {
            let texts = slices(&texts);
            match ids.data_type() {
                DataType::List(_) => each_decodes_to(&self.0, ids.as_list::<i32>(), &texts, (begin, end), stop),
                DataType::LargeList(_) => each_decodes_to(&self.0, ids.as_list::<i64>(), &texts, (begin, end), stop),
                _ => Ok(false),
            }
        })
    }
}

impl PyEncoder {
    fn batch(&self, texts: &Bound<'_, PyAny>, wanted: Wanted, threads: usize) -> PyResult<EncodedBatch> {
        let py = texts.py();
        let texts = Texts::new(texts)?;
        let texts = texts.slices()?;
        run(py, |stop| self.0.encode_batch(texts.len(), |i| texts.get(i), |i| texts.n_bytes(i), wanted, threads, stop))
    }

    /// The result of `make` for the bytes of all tokens.
    fn decoded<'py, T>(
        &self,
        ids: &Bound<'py, PyAny>,
        make: impl FnOnce(Python<'py>, &[u8]) -> PyResult<T>,
    ) -> PyResult<T> {
        let py = ids.py();
        let bytes = if let Ok(list) = ids.cast::<PyList>() {
            let ids = u32s_of(list)?;
            run(py, |stop| joined(&self.0, &ids, stop))?
        } else {
            let array = id_array(ids)?;
            run(py, |stop| match ids_of(&array) {
                Some(IdSlice::Wide(ids)) => joined(&self.0, ids, stop),
                Some(IdSlice::Narrow(ids)) => joined(&self.0, ids, stop),
                None => Err(CoreError::Internal("the ids are of another type".to_owned())),
            })?
        };
        let made = make(py, bytes.as_slice());
        keep(bytes);
        made
    }
}

/// The text of some bytes. Invalid UTF-8 becomes U+FFFD exactly as in `bytes.decode(errors="replace")`.
fn str_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    PyString::from_bytes(py, bytes).or_else(|error| {
        if !error.is_instance_of::<PyUnicodeDecodeError>(py) {
            return Err(error);
        }
        PyString::from_encoded_object(bytes_of(py, bytes)?.as_any(), Some(c"utf-8"), Some(c"replace"))
    })
}

/// A copy of some bytes. `PyBytes::new` would panic without enough memory.
fn bytes_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |copy| {
        copy.copy_from_slice(bytes);
        Ok(())
    })
}

/// The bytes of all tokens, joined.
fn joined<I: Copy + Into<u32>>(encoder: &Encoder, ids: &[I], stop: &Stop) -> interrupt::Result<Tail<u8>> {
    let pages = if ids.len() > PIECE_IDS { Pages::try_new(8 * ids.len()) } else { None };
    let mut bytes = pages.map_or_else(|| BYTES.take(), Tail::from);
    for some in ids.chunks(encoder.decoder.n_checked(PIECE_IDS)) {
        stop.check()?;
        encoder.decoder.decode(some, &mut bytes)?;
    }
    Ok(bytes)
}

/// Keeps the buffer for the next text of this thread. After an error no buffer is kept, so a kept one is always empty.
fn keep(mut bytes: Tail<u8>) {
    bytes.clear(TEXT_BYTES_KEPT_MAX);
    BYTES.set(bytes);
}

/// The ids as an array, without a copy.
fn ids_array(ids: Ids) -> ArrayRef {
    let n = ids.len();
    let values = match ids {
        Ids::List(ids) => ids.into(),
        block @ Ids::Block(_) => ScalarBuffer::new(Buffer::from(Bytes::from_owner(block)), 0, n),
    };
    Arc::new(UInt32Array::new(values, None))
}

/// Whether the ids of each list decode to its text between the bytes `around`.
fn each_decodes_to<O: OffsetSizeTrait>(
    encoder: &Encoder,
    lists: &GenericListArray<O>,
    texts: &[&[u8]],
    around: (&[u8], &[u8]),
    stop: &Stop,
) -> interrupt::Result<bool> {
    if lists.null_count() > 0 || lists.len() != texts.len() {
        return Ok(false);
    }
    let (decoder, ids) = (&encoder.decoder, ids_of(lists.values()));
    let mut scratch = BYTES.take();
    for (&text, span) in texts.iter().zip(lists.value_offsets().windows(2)) {
        stop.check()?;
        let (span, expected) = (span[0].as_usize()..span[1].as_usize(), [around.0, text, around.1]);
        let is_right = match ids {
            Some(IdSlice::Wide(ids)) => decoder.decodes_to(&ids[span], &expected, &mut scratch),
            Some(IdSlice::Narrow(ids)) => decoder.decodes_to(&ids[span], &expected, &mut scratch),
            None => false,
        };
        if !is_right {
            return Ok(false);
        }
    }
    keep(scratch);
    Ok(true)
}

fn decode_lists<O: OffsetSizeTrait>(
    encoder: &Encoder,
    lists: &GenericListArray<O>,
    threads: usize,
    stop: &Stop,
) -> interrupt::Result<LargeBinaryArray> {
    if lists.null_count() > 0 {
        return Err(CoreError::Tokenizer("expected lists of ids without nulls; found a null.".to_string()));
    }
    let ends = lists.value_offsets();
    let (first, last) = (ends[0].as_usize(), ends[lists.len()].as_usize());
    let values = lists.values().slice(first, last - first); // the array may be a slice of more values
    let starts: Vec<usize> = ends.iter().map(|end| end.as_usize() - first).collect();
    match ids_of(&values) {
        Some(IdSlice::Wide(ids)) => decode_each(encoder, ids, &starts, threads, stop),
        Some(IdSlice::Narrow(ids)) => decode_each(encoder, ids, &starts, threads, stop),
        None => Err(CoreError::Tokenizer(match first_null(&values) {
            Some(null) => format!(
                "list {}: expected ids without nulls; found a null at {}.",
                starts.partition_point(|&start| start <= null) - 1,
                null - starts.iter().rfind(|&&start| start <= null).unwrap_or(&0)
            ),
            None => format!("expected lists of uint16 or uint32; found {}.", values.data_type()),
        })),
    }
}

/// Decodes lists. The ids of list i are those from `starts[i]` to `starts[i + 1]`.
fn decode_each<I: Copy + Into<u32> + Sync>(
    encoder: &Encoder,
    ids: &[I],
    starts: &[usize],
    threads: usize,
    stop: &Stop,
) -> interrupt::Result<LargeBinaryArray> {
    let (n, threads) = (starts.len() - 1, threads.min(ids.len() / PIECE_IDS + 1));
    let n_checked = encoder.decoder.n_checked(PIECE_IDS);
    let work = |(): &mut (), part: Range<usize>, (bytes, ends): &mut (Tail<u8>, Vec<i64>), _: &Turn| {
        stop.check()?;
        for i in part {
            for (k, some) in ids[starts[i]..starts[i + 1]].chunks(n_checked).enumerate() {
                if k > 0 {
                    stop.check()?;
                }
                encoder.decoder.decode(some, bytes).map_err(|error| match error {
                    CoreError::Tokenizer(what) => CoreError::Tokenizer(format!("list {i}: {what}")),
                    other => other,
                })?;
            }
            ends.push(bytes.n() as i64);
        }
        Ok(())
    };
    let (mut all, mut all_ends) = (Vec::new(), Vec::with_capacity(n));
    let take = |(bytes, ends): &mut (Tail<u8>, Vec<i64>)| {
        let before = all.len() as i64;
        all_ends.extend(ends.drain(..).map(|end| end + before));
        all.extend_from_slice(bytes.as_slice());
        bytes.clear(PIECE_BYTES_KEPT_MAX);
    };
    in_order(
        &pieces(n, threads, n_checked, |i| starts[i + 1] - starts[i]),
        threads,
        stop,
        (|| Ok(((), Default::default())), |(), _| ()),
        work,
        take,
        |(), _| (),
    )?;
    LargeBinaryArray::try_new(offsets(all_ends), all.into(), None)
        .map_err(|error| CoreError::Internal(error.to_string()))
}
