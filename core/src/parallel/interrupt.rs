//! How calls end early: by an error, a request to stop, or a panic.
//!
//! Invariant: no panic leaves `guarded`, and every loop over input calls `Stop::check` at least once in a few thousand steps.
//! Cost: a check takes two relaxed atomic loads and the thread's id. In the thread that decides whether to go on, it also takes a
//! lock and a look at the clock, about 30 ns.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

/// Why a call of the core ends without a result. Each kind is a class of tokenmill.errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreError {
    /// A split pattern does not compile, or gives up on a text.
    Pattern(String),
    /// A text is not UTF-8.
    Text(String),
    /// A vocabulary, a merge or an id is wrong.
    Tokenizer(String),
    /// A count exceeds 64 bits, or counts are wrong in another way.
    Counts(String),
    /// A thread cannot be started.
    Threads(String),
    /// Ctrl-C, or `interrupt(true)`.
    Interrupted,
    /// A panic, which is a defect of this crate.
    Internal(String),
}

/// The result of an operation of the core.
pub type Result<T> = std::result::Result<T, CoreError>;

/// The first bytes as text, for a message.
pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}

static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// Makes every long call in all threads end with `Interrupted` (true), or lets them run again (false).
pub fn interrupt(on: bool) {
    INTERRUPT.store(on, Ordering::Relaxed);
}

/// The request to stop one call.
#[derive(Default)]
pub struct Stop<'a> {
    is_requested: AtomicBool,
    asked: Option<Asked<'a>>,
}

/// The thread that decides whether to go on, and the function that decides.
struct Asked<'a>(ThreadId, &'a (dyn Fn() -> bool + Sync));

impl<'a> Stop<'a> {
    /// A request that is made when `goes_on` returns false. It is called at each check in the current thread.
    pub fn unless(goes_on: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { asked: Some(Asked(std::thread::current().id(), goes_on)), ..Self::default() }
    }

    /// Requests that the call stops at its next check.
    pub fn request(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
    }

    /// Returns an error once the call must stop.
    pub fn check(&self) -> Result<()> {
        if let Some(Asked(thread, goes_on)) = &self.asked
            && *thread == std::thread::current().id()
            && !goes_on()
        {
            self.request();
        }
        if self.is_requested.load(Ordering::Relaxed) || INTERRUPT.load(Ordering::Relaxed) {
            return Err(CoreError::Interrupted);
        }
        Ok(())
    }
}

/// Runs `work`, and turns a panic into `Internal`.
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| Err(panicked(&*cause)))
}

/// The error for the payload of a panic.
fn panicked(cause: &(dyn Any + Send)) -> CoreError {
    let what = cause
        .downcast_ref::<&str>()
        .map(|text| (*text).to_string())
        .or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_string());
    CoreError::Internal(format!("the core panicked: {what}. This is a defect of tokenmill; please report it."))
}

/// Cuts 0..n into at most `parts` ranges of about equal weight. `weight_before(i)`: the weight of all elements before i.
pub fn cut(n: usize, parts: usize, weight_before: impl Fn(usize) -> usize) -> Vec<std::ops::Range<usize>> {
    let total = weight_before(n);
    let mut ranges = Vec::with_capacity(parts);
    let mut start = 0;
    for part in 1..=parts {
        let goal = (total as u128 * part as u128 / parts as u128) as usize;
        let mut end = if part == parts { n } else { start };
        while end < n && weight_before(end + 1) <= goal {
            end += 1;
        }
        if end > start {
            ranges.push(start..end);
        }
        start = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let found: Result<()> = guarded(|| panic!("boom {}", 1));
        assert!(matches!(found, Err(CoreError::Internal(text)) if text.contains("boom 1")));
    }

    #[test]
    fn a_stop_is_noticed() {
        let stop = Stop::default();
        assert_eq!(stop.check(), Ok(()));
        stop.request();
        assert_eq!(stop.check(), Err(CoreError::Interrupted));
    }

    #[test]
    fn ranges_have_about_equal_weight_and_cover_all() {
        assert_eq!(cut(4, 2, |i| [0, 1, 2, 3, 100][i]), [0..3, 3..4]);
        assert!(cut(0, 2, |_| 0).is_empty());
        assert_eq!(cut(5, 1, |i| i).first(), Some(&(0..5)));
        assert_eq!(cut(5, 8, |i| i).iter().map(|range| range.len()).sum::<usize>(), 5);
    }
}
