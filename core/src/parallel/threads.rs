//! Work in several threads that start and end within the call, so a fork or the end of the process never meets an idle one.
//!
//! Invariant: no thread works for a call that has ended, even after a panic. Cost: starting a thread takes about 70 microseconds.

use crate::parallel::affinity;
use crate::parallel::interrupt::{CoreError, Result, Stop, guarded};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, scope};
use std::time::Duration;

/// How often a thread that waits for others checks whether to stop.
const TICK: Duration = Duration::from_millis(50);

/// Runs `work` for each part: the last part in this thread, each other part in a new one. Results are in the order of the parts.
/// While this thread waits, it checks `stop`.
pub fn in_threads<P: Send, T: Send>(
    mut parts: Vec<P>,
    stop: &Stop,
    work: impl Fn(P) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let last = parts.pop();
    if parts.is_empty() {
        return last.map(|part| guarded(|| work(part))).into_iter().collect();
    }
    let (work, here) = (&work, affinity::processor());
    scope(|scope| {
        let (working, ended) = channel::<()>();
        let mut threads = Vec::with_capacity(parts.len());
        for part in parts {
            let working = working.clone(); // dropped when the thread has finished its work
            let begun = Builder::new().spawn_scoped(scope, move || {
                let done = guarded(|| {
                    affinity::leave(here);
                    work(part)
                });
                drop(working);
                done
            });
            threads.push(begun.map_err(|error| {
                stop.request();
                CoreError::Threads(format!(
                    "threads: one could not be begun: {error}. Ask for fewer, or raise the limit of processes (ulimit -u)."
                ))
            })?);
        }
        drop(working);
        std::thread::yield_now(); // so that a thread that starts on this processor can leave it
        let own = last.map(|part| guarded(|| work(part)));
        while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            let _ = stop.check(); // other threads see the request that it makes
        }
        let none = |_| Err(CoreError::Internal("a thread ended without a result".to_string()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(none)).chain(own).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[test]
    fn a_panic_in_a_thread_becomes_an_error() {
        let found =
            in_threads(vec![1, 2, 3], &Stop::default(), |part| if part == 2 { panic!("two") } else { Ok(part) });
        assert!(matches!(found, Err(CoreError::Internal(text)) if text.contains("two")));
    }

    #[test]
    fn results_come_in_the_order_of_the_parts() {
        for parts in [vec![], vec![3], vec![3, 1, 2]] {
            assert_eq!(in_threads(parts.clone(), &Stop::default(), Ok), Ok(parts));
        }
    }

    #[test]
    fn the_thread_of_a_call_is_asked_whether_to_go_on_and_no_other() {
        let (here, n_asked) = (std::thread::current().id(), AtomicUsize::new(0));
        let goes_on = || {
            assert_eq!(std::thread::current().id(), here);
            n_asked.fetch_add(1, Ordering::Relaxed) < 2
        };
        let stop = Stop::unless(&goes_on);
        assert_eq!(stop.check(), Ok(()));
        // This thread finishes its part at once. The other one ends when it is stopped.
        let found = in_threads(vec![false, true], &stop, |is_own| {
            if is_own {
                return Ok(());
            }
            loop {
                stop.check()?;
                std::thread::yield_now();
            }
        });
        assert_eq!(found, Err(CoreError::Interrupted));
        assert!(n_asked.into_inner() >= 3);
    }

    thread_local! {
        static LEAVING: std::cell::RefCell<Option<Leaving>> = const { std::cell::RefCell::new(None) };
    }

    struct Leaving(Arc<AtomicUsize>);

    impl Drop for Leaving {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn no_thread_outlives_its_call() {
        let n_left = Arc::new(AtomicUsize::new(0));
        for n in 1..100 {
            let leave = |is_own: bool| {
                if !is_own {
                    LEAVING.set(Some(Leaving(n_left.clone())));
                }
                Ok(())
            };
            in_threads(vec![false, true], &Stop::default(), leave).unwrap();
            assert_eq!(n_left.load(Ordering::Relaxed), n);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn others_run_where_their_caller_may() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let all = sched_getaffinity(None).unwrap();
        let others = || in_threads(vec![(); 2], &Stop::default(), |()| Ok(sched_getaffinity(None).unwrap())).unwrap();
        for at in (0..CpuSet::MAX_CPU).filter(|&at| all.is_set(at)).take(2).cycle().take(100) {
            let mut one = CpuSet::new();
            one.set(at);
            sched_setaffinity(None, &one).unwrap();
            let found = others();
            sched_setaffinity(None, &all).unwrap();
            assert!(found.iter().all(|set| *set == one) && others().iter().all(|set| *set == all));
        }
    }

    #[test]
    fn a_panic_of_the_caller_waits_for_the_others() {
        let is_done = AtomicBool::new(false);
        let stop_panics = || panic!("while it waits");
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            in_threads(vec![false, true], &Stop::unless(&stop_panics), |is_own| {
                if !is_own {
                    std::thread::sleep(TICK * 3);
                    is_done.store(true, Ordering::Relaxed);
                }
                Ok(())
            })
        }));
        assert!(found.is_err() && is_done.into_inner());
    }
}
