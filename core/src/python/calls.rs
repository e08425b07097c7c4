//! How a call from Python runs: without the GIL, ended by a signal, `interrupt` or its thread's deadline.

use crate::guard::{self, CoreError, Stop, guarded, panicked};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::mpsc::{RecvTimeoutError, channel};
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
pub(super) const SHORT_BYTES: usize = 1 << 16;

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
pub(super) fn long<T: Send>(
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
pub(super) fn run<T: Send>(
    py: Python<'_>,
    n_bytes: usize,
    work: impl FnOnce(&Stop) -> guard::Result<T> + Send,
) -> PyResult<T> {
    in_time(DEADLINE.get())?;
    if n_bytes < SHORT_BYTES {
        return py.detach(|| guarded(|| work(&Stop::default()))).map_err(PyErr::from);
    }
    long(py, work, || Ok(()))
}

#[pyfunction]
#[pyo3(signature = (seconds))]
pub(super) fn deadline(seconds: Option<f64>) -> PyResult<()> {
    let time = seconds.map(Duration::try_from_secs_f64).transpose();
    let time = time.map_err(|error| PyValueError::new_err(format!("deadline: {error}")))?;
    DEADLINE.set(time.and_then(|time| Instant::now().checked_add(time)));
    Ok(())
}

#[pyfunction]
pub(super) fn interrupt(on: bool) {
    guard::interrupt(on);
}
