//! The Python class `ParquetRows`: record batches → the bytes of a Parquet file. The crate `parquet` writes all of it but the pages of
//! lists of integers, which `crate::list_pages` makes faster (docs/design/tried.md has the figures). Cost: O(bytes of a batch) in time
//! and memory.

use super::arrays::record_batch_of;
use super::attaching::calling;
use super::calls::run;
use crate::list_pages::{Int, parts, write};
use crate::parallel::interrupt::{self, CoreError, Stop};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, UInt16Type, UInt32Type};
use arrow_array::{Array, ArrayRef, ListArray};
use arrow_pyarrow::FromPyArrow;
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, ColumnPath};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

const ZSTD_LEVEL: i32 = 1;
/// Of a page; 1 MiB before compression.
const N_VALUES_MAX: usize = 1 << 18;

impl From<ParquetError> for CoreError {
    fn from(error: ParquetError) -> Self {
        CoreError::Internal(format!("Parquet: {error}"))
    }
}

#[pyclass(module = "tokenmill._core")]
pub(super) struct ParquetRows {
    schema: Arc<Schema>,
    /// None once the file is finished, or a call failed.
    file: Option<File>,
}

struct File {
    writer: SerializedFileWriter<Vec<u8>>,
    pages: Pages,
}

#[pymethods]
impl ParquetRows {
    #[new]
    fn new(schema: &Bound<'_, PyAny>, statistics: Vec<String>) -> PyResult<Self> {
        let schema = Arc::new(calling(schema.py(), || Schema::from_pyarrow_bound(schema))?);
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).map_err(CoreError::from)?))
            .set_dictionary_enabled(false)
            .set_offset_index_disabled(true)
            .set_statistics_enabled(EnabledStatistics::None);
        for name in statistics {
            properties =
                properties.set_column_statistics_enabled(ColumnPath::from(vec![name]), EnabledStatistics::Chunk);
        }
        let mut properties = properties.build();
        add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
        let columns = ArrowSchemaConverter::new().convert(&schema).map_err(CoreError::from)?;
        let writer = SerializedFileWriter::new(Vec::new(), columns.root_schema_ptr(), Arc::new(properties));
        let file = File {
            writer: writer.map_err(CoreError::from)?,
            pages: Pages { zstd: Compressor::new(ZSTD_LEVEL)?, body: Vec::new(), compressed: Vec::new() },
        };
        Ok(Self { schema, file: Some(file) })
    }

    fn row_group<'py>(&mut self, py: Python<'py>, batch: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let batch = record_batch_of(batch)?;
        if batch.schema() != self.schema {
            return Err(PyTypeError::new_err("expected a batch with the schema of the file."));
        }
        if batch.columns().iter().zip(self.schema.fields()).any(|(column, field)| has_wrong_null(column, field)) {
            return Err(PyTypeError::new_err("expected no null where the schema of the file has none."));
        }
        let mut file = self.taken()?;
        let schema = self.schema.clone();
        let (file, bytes) = run(py, move |stop| {
            file.add(schema, batch.columns(), stop)?;
            let bytes = file.drained()?;
            Ok((file, bytes))
        })?;
        self.file = Some(file);
        Ok(PyBytes::new(py, &bytes))
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut file = self.taken()?;
        let bytes = run(py, move |_| {
            file.writer.finish()?;
            file.drained()
        })?;
        Ok(PyBytes::new(py, &bytes))
    }
}

impl ParquetRows {
    fn taken(&mut self) -> PyResult<File> {
        self.file.take().ok_or_else(|| PyValueError::new_err("the file is finished, or could not be written."))
    }
}

impl File {
    /// The bytes that were written since the last call.
    fn drained(&mut self) -> interrupt::Result<Vec<u8>> {
        self.writer.flush().map_err(|error| CoreError::Internal(error.to_string()))?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    fn add(&mut self, schema: Arc<Schema>, columns: &[ArrayRef], stop: &Stop) -> interrupt::Result<()> {
        let all = self.writer.schema_descr().columns().to_vec();
        let n_groups = self.writer.flushed_row_groups().len();
        let factory = ArrowRowGroupWriterFactory::new(&self.writer, schema.clone());
        let writers = factory.create_column_writers(n_groups)?;
        let mut group = self.writer.next_row_group()?;
        for (((field, column), described), mut writer) in schema.fields().iter().zip(columns).zip(all).zip(writers) {
            stop.check()?;
            if let Some(lists) = lists_of_ints(column, &described) {
                let (bytes, close) = self.pages.chunk(lists, described, stop)?;
                group.append_column(&bytes, close)?;
            } else {
                for leaf in compute_leaves(field, column)? {
                    writer.write(&leaf)?;
                }
                writer.close()?.append_to_row_group(&mut group)?;
            }
        }
        group.close()?;
        Ok(())
    }
}

/// Whether a list of the column has a null that its field excludes, at which Arrow itself does not look.
fn has_wrong_null(column: &ArrayRef, field: &Field) -> bool {
    let (Some(lists), DataType::List(element)) = (column.as_list_opt::<i32>(), field.data_type()) else { return false };
    let offsets = lists.value_offsets();
    let (first, end) = (offsets[0] as usize, offsets[lists.len()] as usize);
    !element.is_nullable() && lists.values().slice(first, end - first).null_count() > 0
}

/// The column, if neither its lists nor their integers can be null.
fn lists_of_ints<'a>(column: &'a ArrayRef, described: &ColumnDescPtr) -> Option<&'a ListArray> {
    let lists = column.as_list_opt::<i32>()?;
    let is_int = matches!(lists.value_type(), DataType::UInt16 | DataType::UInt32 | DataType::Int8 | DataType::Int32);
    (is_int && described.max_def_level() == 1).then_some(lists)
}

/// What makes pages, kept from one to the next.
struct Pages {
    zstd: Compressor<'static>,
    /// A page before compression.
    body: Vec<u8>,
    compressed: Vec<u8>,
}

impl Pages {
    /// The pages of a column of lists, and what the file's footer says of them.
    fn chunk(
        &mut self,
        lists: &ListArray,
        described: ColumnDescPtr,
        stop: &Stop,
    ) -> interrupt::Result<(Bytes, ColumnCloseResult)> {
        let values = lists.values();
        match values.data_type() {
            DataType::UInt16 => self.chunk_of(lists, values.as_primitive::<UInt16Type>().values(), described, stop),
            DataType::UInt32 => self.chunk_of(lists, values.as_primitive::<UInt32Type>().values(), described, stop),
            DataType::Int8 => self.chunk_of(lists, values.as_primitive::<Int8Type>().values(), described, stop),
            _ => self.chunk_of(lists, values.as_primitive::<Int32Type>().values(), described, stop),
        }
    }

    fn chunk_of<I: Int>(
        &mut self,
        lists: &ListArray,
        values: &[I],
        described: ColumnDescPtr,
        stop: &Stop,
    ) -> interrupt::Result<(Bytes, ColumnCloseResult)> {
        let offsets = lists.value_offsets();
        let mut sink = TrackedWrite::new(Vec::new());
        let (mut n_levels, mut n_uncompressed) = (0, 0);
        for part in parts(offsets, N_VALUES_MAX) {
            stop.check()?;
            write(offsets, values, &part, &mut self.body);
            let page = self.page(part.n_levels(offsets))?;
            let written = SerializedPageWriter::new(&mut sink).write_page(page)?;
            n_levels += i64::from(written.num_values);
            n_uncompressed += written.uncompressed_size as i64;
        }
        let bytes = Bytes::from(sink.into_inner()?);
        let metadata = ColumnChunkMetaData::builder(described)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_encodings(vec![Encoding::RLE, Encoding::BYTE_STREAM_SPLIT])
            .set_num_values(n_levels)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(n_uncompressed)
            .set_data_page_offset(0)
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: lists.len() as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((bytes, close))
    }

    /// The page of `self.body`.
    fn page(&mut self, n_levels: usize) -> interrupt::Result<CompressedPage> {
        self.compressed.resize(compress_bound(self.body.len()), 0);
        let n = self.zstd.compress_to_buffer(&self.body, self.compressed.as_mut_slice());
        let n = n.map_err(|error| CoreError::Internal(format!("zstd: {error}")))?;
        let page = Page::DataPage {
            buf: Bytes::copy_from_slice(&self.compressed[..n]),
            num_values: u32::try_from(n_levels).map_err(|error| CoreError::Internal(error.to_string()))?,
            encoding: Encoding::BYTE_STREAM_SPLIT,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        Ok(CompressedPage::new(page, self.body.len()))
    }
}
