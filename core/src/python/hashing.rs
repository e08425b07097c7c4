//! `md5_blocks`.

use super::attaching::detached;
use crate::md5::{BLOCK_BYTES, State, advance};
use crate::parallel::interrupt::guarded;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

const STATE_BYTES: usize = size_of::<State>();

#[pyfunction]
pub(super) fn md5_blocks<'py>(
    py: Python<'py>,
    states: &[u8],
    chunks: Vec<PyBackedBytes>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (given, rest) = states.as_chunks::<STATE_BYTES>();
    if given.len() != chunks.len() || !rest.is_empty() || chunks.iter().any(|chunk| chunk.len() % BLOCK_BYTES != 0) {
        return Err(PyValueError::new_err(format!(
            "md5_blocks: found {} bytes of states and {} chunks; expected {STATE_BYTES} bytes for each, and chunks of whole blocks \
             of {BLOCK_BYTES} bytes",
            states.len(),
            chunks.len(),
        )));
    }
    let state_of = |bytes: &[u8; STATE_BYTES]| -> State { bytemuck::must_cast::<_, State>(*bytes).map(u32::from_le) };
    let mut states: Vec<State> = given.iter().map(state_of).collect();
    let chunks: Vec<&[u8]> = chunks.iter().map(|chunk| &**chunk).collect();
    detached(py, || {
        guarded(|| {
            advance(&mut states, &chunks);
            Ok(())
        })
    })?;
    let after: Vec<u8> = states.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    Ok(PyBytes::new(py, &after))
}
