//! Calls of Python's code from threads that the end of the process meets.
//!
//! Once the interpreter ends, Python before 3.14 ends a thread that asks for the GIL by unwinding it (`pthread_exit`). pyo3 lets
//! such a thread wait for ever where pyo3 asks. But Python's code asks as well, and when it is called from here, Rust's frames
//! are in the way of the unwinding, and the process aborts: with pyo3's ways alone, in some of 12 processes with daemon threads
//! that encode. So no thread begins such a call once the interpreter is about to end, and the end waits for those under way.

use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static IS_ENDING: AtomicBool = AtomicBool::new(false);
static N_CALLING: AtomicUsize = AtomicUsize::new(0);
/// So long the thread that ends the interpreter waits for calls under way, and a new call for the end.
const WAIT_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// Whether this thread ends the interpreter.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// That a call is under way, as long as this lives.
struct Calling;

impl Calling {
    fn new() -> Self {
        N_CALLING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        N_CALLING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `work`, which calls Python's code or a library's: those may let go of the GIL and ask for it again.
pub(super) fn calling<T>(py: Python<'_>, work: impl FnOnce() -> T) -> T {
    // Either `ending` sees this call, or this call sees the end: both orders are one for all threads.
    let mut _calling = Calling::new();
    if IS_ENDING.load(Ordering::SeqCst) && !ENDS.get() {
        drop(_calling);
        // It comes back where the interpreter does not end after all, as when a function of atexit waits for this thread.
        py.detach(|| std::thread::sleep(WAIT_MAX));
        _calling = Calling::new();
    }
    work()
}

/// Runs `work`, which calls Python's code, in a thread without the GIL.
pub(super) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    Python::attach(|py| calling(py, || work(py)))
}

/// What Python is to call before it ends, in the thread that ends it: when this returns, no other thread is in a call.
#[pyfunction]
fn ending(py: Python<'_>) {
    ENDS.set(true);
    IS_ENDING.store(true, Ordering::SeqCst);
    let start = Instant::now();
    py.detach(|| {
        while N_CALLING.load(Ordering::SeqCst) > 0 && start.elapsed() < WAIT_MAX {
            std::thread::sleep(Duration::from_micros(100));
        }
    });
}

/// Has Python call `ending`.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.py().import("atexit")?.call_method1("register", (wrap_pyfunction!(ending, module)?,)).map(|_| ())
}
