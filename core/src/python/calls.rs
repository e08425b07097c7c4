//! Runs a call from Python: without the GIL, and ended by a signal, by `interrupt`, or by its thread's deadline.

use super::attaching::attached;
use crate::parallel;
use crate::parallel::interrupt::{CoreError, Stop, guarded};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pyo3::import_exception!(tokenmill.errors, ParamsError);
pyo3::import_exception!(tokenmill.errors, PatternError);
pyo3::import_exception!(tokenmill.errors, CorpusError);
pyo3::import_exception!(tokenmill.errors, TokenizerError);
pyo3::import_exception!(tokenmill.errors, CountsError);
pyo3::import_exception!(tokenmill.errors, InternalError);
pyo3::import_exception!(tokenmill.errors, UnitTimeoutError);

thread_local! {
    /// The time at which calls from this thread must end.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// How often a call in the main thread checks for signals. That takes the GIL, for which other threads may make it wait 5 ms: at
/// 50 ms, encoding beside a busy Python thread took 1.12 times as long.
const TICK: Duration = Duration::from_millis(200);

/// The number of calls that run now, in all threads.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// A call that is counted in `CALLS` until this is dropped.
struct Counted;

impl Counted {
    fn new() -> Self {
        CALLS.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl From<CoreError> for PyErr {
    fn from(error: CoreError) -> Self {
        match error {
            CoreError::Pattern(what) => PatternError::new_err(what),
            CoreError::Text(what) => CorpusError::new_err(what),
            CoreError::Tokenizer(what) => TokenizerError::new_err(what),
            CoreError::Counts(what) => CountsError::new_err(what),
            CoreError::Threads(what) => ParamsError::new_err(what),
            CoreError::Interrupted => PyKeyboardInterrupt::new_err("the call was stopped"),
            CoreError::Internal(what) => InternalError::new_err(what),
        }
    }
}

/// Runs `work` without the GIL. At checks in this thread, signals and the thread's deadline end it. Signal handlers may run any
/// Python code there.
pub(super) fn run<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> parallel::interrupt::Result<T> + Send,
) -> PyResult<T> {
    run_showing(py, work, None)
}

/// Shows the progress of a call.
type Show<'s> = dyn Fn(Python<'_>) -> PyResult<()> + Sync + 's;

/// The same as `run`, but also calls `show` now and then, at checks.
pub(super) fn run_showing<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> parallel::interrupt::Result<T> + Send,
    show: Option<&Show<'_>>,
) -> PyResult<T> {
    let deadline = DEADLINE.get();
    in_time(deadline)?;
    let _counted = Counted::new();
    py.detach(|| {
        // A mutex because every thread that checks has the closure, although only one thread uses it.
        let looked = Mutex::new(Looked::default());
        let goes_on = || {
            let Looked { at, in_vain, raised } = &mut *looked.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = at.is_some_and(|at| at.elapsed() >= TICK);
            if raised.is_none() {
                *raised = in_time(deadline).err();
            }
            if raised.is_none() && is_due && !*in_vain {
                let seen = attached(|py| {
                    *in_vain = show.is_none() && !takes_signals(py)?;
                    py.check_signals()?;
                    show.map_or(Ok(()), |show| show(py))
                });
                *raised = seen.err();
            }
            if is_due || at.is_none() {
                *at = Some(Instant::now());
            }
            raised.is_none()
        };
        let done = guarded(|| work(&Stop::unless(&goes_on)));
        match looked.into_inner().unwrap_or_else(PoisonError::into_inner).raised {
            Some(error) => Err(error),
            None => done.map_err(PyErr::from),
        }
    })
}

/// The state of a call's checks for signals.
#[derive(Default)]
struct Looked {
    /// The time of the last check. The first check only starts the clock, so that a short call need not take the GIL.
    at: Option<Instant>,
    /// Whether checks are useless: this thread runs no signal handlers, and there is nothing to show.
    in_vain: bool,
    raised: Option<PyErr>,
}

/// Whether this thread runs signal handlers. Python runs them only in its main thread.
fn takes_signals(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    threading.call_method0("main_thread")?.getattr("ident")?.eq(threading.call_method0("get_ident")?)
}

fn in_time(deadline: Option<Instant>) -> PyResult<()> {
    match deadline {
        Some(at) if Instant::now() >= at => Err(UnitTimeoutError::new_err("the deadline of this thread is over")),
        _ => Ok(()),
    }
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
pub(super) fn look(py: Python<'_>) -> PyResult<()> {
    run(py, |stop| stop.check())
}

#[pyfunction]
pub(super) fn interrupt(on: bool) {
    parallel::interrupt::interrupt(on);
}

#[pyfunction]
pub(super) fn n_calls() -> usize {
    CALLS.load(Ordering::Relaxed)
}
