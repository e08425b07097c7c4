//! The Python class `ZstdDecompressor`, for frames with larger windows than pyarrow reads. O(bytes), and a window of memory.

use super::calls::run;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};
use zstd::stream::raw::{DParameter, Decoder, Operation};

/// Decompresses zstd frames, one behind the other, that come in pieces.
#[pyclass(module = "tokenmill._core", frozen)]
pub(super) struct ZstdDecompressor {
    decoder: Mutex<Decoder<'static>>,
}

#[pymethods]
impl ZstdDecompressor {
    #[new]
    fn new(window_log_max: u32) -> PyResult<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(window_log_max))?;
        Ok(Self { decoder: Mutex::new(decoder) })
    }

    /// What was decompressed, how many bytes of the data were used for it, and whether a frame ends there.
    fn decompress<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        n_bytes_max: usize,
    ) -> PyResult<(Bound<'py, PyBytes>, usize, bool)> {
        let mut found = vec![0; n_bytes_max];
        let status = run(py, |_| {
            let mut decoder = self.decoder.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(decoder.run_on_buffers(data, &mut found))
        })?
        .map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok((PyBytes::new(py, &found[..status.bytes_written]), status.bytes_read, status.remaining == 0))
    }
}
