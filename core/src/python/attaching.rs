//! Calls of Python code, made safe against the end of the interpreter.
//!
//! When the interpreter ends, Python before 3.14 ends a thread that asks for the GIL by unwinding it (`pthread_exit`). Where pyo3
//! asks, it lets such a thread wait forever. But Python code asks too, and if it was called from here, Rust frames are in the way
//! of the unwinding, and the process aborts: with pyo3's means alone, that happened in some of 12 processes with daemon threads
//! that encode. So no thread begins such a call once the interpreter is about to end, and the end waits for calls in progress.

use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static IS_ENDING: AtomicBool = AtomicBool::new(false);
static N_CALLING: AtomicUsize = AtomicUsize::new(0);
/// How long the ending thread waits for calls in progress, and how long a new call waits for the end.
const WAIT_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// Whether this thread is the one that ends the interpreter.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// A call is in progress while this lives.
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

/// Runs `work`, which calls code of Python or of a library that may release the GIL and ask for it again.
pub(super) fn calling<T>(py: Python<'_>, work: impl FnOnce() -> T) -> T {
    // Either `ending` sees this call, or this call sees the end, because all threads see sequentially consistent accesses in one
    // order.
    let mut _calling = Calling::new();
    if IS_ENDING.load(Ordering::SeqCst) && !ENDS.get() {
        drop(_calling);
        // The sleep returns if the interpreter does not end after all, for example when an atexit function waits for this thread.
        py.detach(|| std::thread::sleep(WAIT_MAX));
        _calling = Calling::new();
    }
    work()
}

/// Runs `work`, which calls Python code, in a thread without the GIL.
pub(super) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    Python::attach(|py| calling(py, || work(py)))
}

/// Called by Python before it ends, in the thread that ends it. When this returns, no other thread is in a call.
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

/// Registers `ending` with atexit.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.py().import("atexit")?.call_method1("register", (wrap_pyfunction!(ending, module)?,)).map(|_| ())
}
