//! The ways to and from the GIL, which end where the interpreter does.
//!
//! Once an interpreter ends, Python before 3.14 ends a thread that asks for the GIL by unwinding it (`pthread_exit`), and with
//! Rust's frames in the way that aborts the process. So from then on no thread comes back but the one that ends it: the others
//! wait for ever, as from 3.14 on they do in Python itself. Python says so only to functions that it calls before it ends, and
//! one that it calls later may wait for such a thread: while nothing ends, that one comes back after a second.

use super::symbols::is_finalizing;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::time::{Duration, Instant};

static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Threads that ask for the GIL, or may; a forked process counts from 0, and may come below.
static N_ASKING: AtomicIsize = AtomicIsize::new(0);
/// So long the thread that ends the interpreter waits for those that ask, and those that do not yet ask for its end.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How often those look whether it is there.
const TICK: Duration = Duration::from_millis(10);

thread_local! {
    /// Whether this thread ends the interpreter.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// That a thread asks for the GIL, or calls what may, as long as this lives.
struct Asking;

impl Asking {
    /// None once the interpreter ends, but in the thread that ends it.
    fn begin() -> Option<Self> {
        // Either `ending` sees this thread, or this thread sees the end: both orders are one for all threads.
        N_ASKING.fetch_add(1, Ordering::SeqCst);
        let asking = Self;
        (ENDS.get() || !IS_ENDING.load(Ordering::SeqCst)).then_some(asking)
    }

    /// Then, without the GIL: comes back where the interpreter does not end after all.
    fn late() -> Self {
        let start = Instant::now();
        while start.elapsed() < WAIT_MAX || is_finalizing() != Some(false) {
            std::thread::sleep(TICK);
        }
        N_ASKING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        N_ASKING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `work` without the GIL.
pub(super) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let (done, _) = py.detach(|| (work(), Asking::begin().unwrap_or_else(Asking::late)));
    done
}

/// Runs `work` with the GIL; for threads without it: the one that ends the interpreter may wait for who has it.
pub(super) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    let _asking = Asking::begin().unwrap_or_else(Asking::late);
    Python::attach(work)
}

/// Runs `work`, which calls Python's code or a library's: those may let go of the GIL and ask for it again.
pub(super) fn calling<T>(py: Python<'_>, work: impl FnOnce() -> T) -> T {
    let _asking = Asking::begin().unwrap_or_else(|| py.detach(Asking::late));
    work()
}

/// What Python is to call before it ends, in the thread that ends it: when this returns, no other thread asks for the GIL.
#[pyfunction]
fn ending(py: Python<'_>) {
    ENDS.set(true);
    IS_ENDING.store(true, Ordering::SeqCst);
    let start = Instant::now();
    detached(py, || {
        // This thread itself asks afterwards.
        while N_ASKING.load(Ordering::SeqCst) > 0 && start.elapsed() < WAIT_MAX {
            std::thread::sleep(Duration::from_micros(100));
        }
    });
}

/// What Python is to call in a forked process, which has no thread but the one that forked.
#[pyfunction]
fn forked() {
    N_ASKING.store(0, Ordering::SeqCst);
}

/// Has Python call `ending` and `forked`.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(ending, module)?,))?;
    let at_fork = PyDict::new(py);
    at_fork.set_item("after_in_child", wrap_pyfunction!(forked, module)?)?;
    if let Some(register) = py.import("os")?.getattr_opt("register_at_fork")? {
        register.call((), Some(&at_fork))?;
    }
    Ok(())
}
