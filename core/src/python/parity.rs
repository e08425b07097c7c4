//! The Python function `train_parity`.

use super::calls::run_showing;
use super::training::{Answer, answer, columns_of};
use crate::parallel::interrupt::Stop;
use crate::train::Progress;
use crate::train::parity::{GroupStart, Measure, ParityGoal, Window, train_parity as learn};
use pyo3::prelude::*;
use std::sync::atomic::Ordering;

/// Columns of pre-tokens and counts.
type Columns<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

#[pyfunction]
#[allow(clippy::too_many_arguments)] // Python passes plain arguments; ParityGoal groups them for the core
#[pyo3(signature = (
    groups, dev, ratios, tokens, n_tokens_max, pair_count_min, token_bytes_max, forbidden, n_global_merges, window, progress,
))]
pub(super) fn train_parity<'py>(
    py: Python<'py>,
    groups: Vec<Columns<'py>>,
    dev: Option<Vec<Columns<'py>>>,
    ratios: Vec<f64>,
    tokens: Vec<Vec<u8>>,
    n_tokens_max: u64,
    pair_count_min: u64,
    token_bytes_max: Option<usize>,
    forbidden: Vec<Vec<u8>>,
    n_global_merges: u64,
    window: Option<(usize, f64)>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Answer<'py>> {
    let columns = |all: &[Columns<'py>]| {
        all.iter().map(|(pretokens, counts)| columns_of(pretokens, counts)).collect::<PyResult<Vec<_>>>()
    };
    let groups = columns(&groups)?;
    let dev = dev.as_deref().map(columns).transpose()?;
    let goal = ParityGoal {
        n_tokens_max,
        pair_count_min: pair_count_min.max(1),
        token_bytes_max: token_bytes_max.unwrap_or(usize::MAX),
        forbidden: &forbidden.into_iter().collect(),
        n_global_merges,
        window: window.map(|(n_merges, alpha)| Window { n_merges, alpha }),
    };
    let done = Progress::default();
    let show = |py: Python<'_>| match &progress {
        None => Ok(()),
        Some(show) => {
            let now = (done.n_tokens.load(Ordering::Relaxed), done.n_merges.load(Ordering::Relaxed));
            show.call1(py, now).map(|_| ())
        }
    };
    let work = |stop: &Stop| {
        let mut dev = dev.map(Vec::into_iter);
        let mut starts = Vec::with_capacity(groups.len());
        for (source, ratio) in groups.into_iter().zip(ratios) {
            let measure = match dev.as_mut().and_then(Iterator::next) {
                Some(source) => Measure::Dev(source.words(&tokens, false, stop)?),
                None => Measure::Ratio(ratio),
            };
            starts.push(GroupStart { words: source.words(&tokens, false, stop)?, measure });
        }
        learn(starts, &tokens, &goal, &done, stop)
    };
    let learned = run_showing(py, work, Some(&show))?;
    answer(py, learned)
}
