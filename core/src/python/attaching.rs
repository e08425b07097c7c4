//! The ways to and from the GIL, which end where the interpreter does.
//!
//! Once an interpreter ends, Python before 3.14 ends a thread that asks for the GIL by unwinding it (`pthread_exit`), and with
//! Rust's frames in the way that aborts the process. So from then on no thread comes back but the one that ends it: the others
//! wait for ever, as from 3.14 on they do in Python itself.

use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Threads that ask for the GIL, or may.
static N_ASKING: AtomicUsize = AtomicUsize::new(0);
/// Those are awaited no longer: in a forked process, some that are counted are not there.
const WAIT_MAX: Duration = Duration::from_secs(1);

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
}

impl Drop for Asking {
    fn drop(&mut self) {
        N_ASKING.fetch_sub(1, Ordering::SeqCst);
    }
}

fn wait_for_ever<T>() -> T {
    loop {
        std::thread::park();
    }
}

/// Runs `work` without the GIL.
pub(super) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let (done, _) = py.detach(|| (work(), Asking::begin().unwrap_or_else(wait_for_ever)));
    done
}

/// Runs `work` with the GIL.
pub(super) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    let _asking = Asking::begin().unwrap_or_else(wait_for_ever);
    Python::attach(work)
}

/// Runs `work`, which calls Python's code or a library's: those may let go of the GIL and ask for it again.
pub(super) fn calling<T>(py: Python<'_>, work: impl FnOnce() -> T) -> T {
    let _asking = Asking::begin().unwrap_or_else(|| py.detach(wait_for_ever));
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

/// Has Python call `ending`.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let atexit = module.py().import("atexit")?;
    atexit.call_method1("register", (wrap_pyfunction!(ending, module)?,))?;
    Ok(())
}
