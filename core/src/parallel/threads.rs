//! Work in several threads, which are kept for a moment: to begin one costs its caller some 70 microseconds, and 115 pass until
//! it works; to wake one costs some 10, and 50 pass.
//!
//! Invariant: no thread works for a call that has ended, not even by a panic; one that works for a call does nothing else before.
//! Unsafe because a kept thread, unlike those of `std::thread::scope`, cannot borrow, and what a call does borrows its parts;
//! and because what keeps signals from a thread and counts forks are calls of C.

use crate::parallel::affinity::{self, Processors};
use crate::parallel::interrupt::{CoreError, Result, Stop, guarded};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, TryRecvError, channel};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{Builder, ThreadId};
use std::time::{Duration, Instant};

/// How often a thread that waits for others checks whether to go on.
const TICK: Duration = Duration::from_millis(50);
/// So long a thread looks whether the others have ended before it sleeps: their last parts take no longer.
const AWAKE: Duration = Duration::from_micros(200);
/// So long a thread without work is kept, from one batch to the next, and no longer: Python warns of a fork beside threads.
const KEPT: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });

/// What a thread is to do, and by dropping what it says that it has ended; dropped in this order.
struct Work<'w> {
    work: Box<dyn FnOnce() + Send + 'w>,
    working: Sender<()>,
}

/// A thread without work.
struct Idle {
    /// Its process, by the forks that led to it: a process has the list of the one that it was forked from, but none of its
    /// threads.
    n_forks: usize,
    thread: ThreadId,
    /// Those on which it may run.
    processors: Option<Processors>,
    next: Sender<Work<'static>>,
}

static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());
static N_FORKS: AtomicUsize = AtomicUsize::new(0);

/// Does `work` for each part, every part but the last in another thread; results in the order of the parts. While this thread
/// waits for others it checks `stop`.
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
    let found: Vec<_> = parts.iter().map(|_| Mutex::new(None)).collect();
    let team = Team::new();
    for (part, found) in parts.into_iter().zip(&found) {
        let work = Box::new(move || {
            let done = guarded(|| {
                affinity::leave(here);
                work(part)
            });
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        });
        let work = Work { work, working: team.working.clone() };
        // SAFETY: only the time is changed for which it may borrow. Whether it is done or not, it is dropped before its sender
        // is, which `team` waits for when it is dropped; and that is, on every way out of here, before what it borrows.
        #[allow(unsafe_code)]
        let work = unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
        if let Err(error) = begin(work) {
            stop.request();
            return Err(CoreError::Threads(format!(
                "threads: one could not be begun: {error}. Ask for fewer, or raise the limit of processes (ulimit -u)."
            )));
        }
    }
    std::thread::yield_now(); // so that one that begins on this processor can leave it
    let own = last.map(|part| guarded(|| work(part)));
    team.wait(stop);
    let found = found.into_iter().map(|found| found.into_inner().unwrap_or_else(PoisonError::into_inner));
    let none = || Err(CoreError::Internal("a thread ended without a result".to_string()));
    found.chain([own]).map(|found| found.unwrap_or_else(none)).collect()
}

/// The threads that work for a call: each has a sender. Dropped in this order: it has none itself, and then waits for theirs.
struct Team {
    working: Sender<()>,
    ended: Ended,
}

struct Ended(Receiver<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        while self.0.recv().is_ok() {}
        fence(Ordering::Acquire); // what they did is seen from here on
    }
}

impl Team {
    fn new() -> Self {
        let (working, ended) = channel();
        Self { working, ended: Ended(ended) }
    }

    /// Until all have ended, looks whether to stop.
    fn wait(self, stop: &Stop) {
        let Self { working, ended } = self;
        drop(working);
        // They are about to end: asleep this thread would take as long to wake up.
        let began = Instant::now();
        while began.elapsed() < AWAKE {
            if ended.0.try_recv() == Err(TryRecvError::Disconnected) {
                return;
            }
            std::thread::yield_now();
        }
        while ended.0.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            let _ = stop.check(); // the others see what it finds
        }
    }
}

/// Has an idle thread do `work`, or a new one: one that may run where this thread may.
fn begin(mut work: Work<'static>) -> std::io::Result<()> {
    let (n_forks, processors) = (n_forks(), affinity::allowed());
    let idle = || {
        // In a forked process, the lock may be held by a thread that is not there; so may that of a channel, which is not dropped.
        let mut all = IDLE.try_lock().ok()?;
        all.extract_if(.., |one| one.n_forks != n_forks).for_each(std::mem::forget);
        let at = all.iter().rposition(|one| one.processors == processors)?;
        Some(all.swap_remove(at))
    };
    while let Some(idle) = idle() {
        match idle.next.send(work) {
            Ok(()) => return Ok(()),
            Err(SendError(unsent)) => work = unsent,
        }
    }
    Builder::new().spawn(move || serve(n_forks, processors, work)).map(|_| ())
}

/// Does `work`, and what else there is to do before long.
fn serve(n_forks: usize, processors: Option<Processors>, mut work: Work) {
    leave_signals();
    let thread = std::thread::current().id();
    let take_off = || {
        let mut all = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|one| one.n_forks == n_forks && one.thread == thread);
        at.map(|at| all.swap_remove(at)).is_some()
    };
    loop {
        (work.work)();
        let (next, given) = channel();
        let Ok(mut all) = IDLE.try_lock() else { return };
        all.push(Idle { n_forks, thread, processors, next });
        drop((all, work.working));
        work = match given.recv_timeout(KEPT) {
            Ok(next) => next,
            Err(_) if take_off() => return,
            // Who took it off is about to send.
            Err(_) => match given.recv() {
                Ok(next) => next,
                Err(_) => return,
            },
        };
    }
}

/// The forks from the first process to this one. The id of a process would not do: another one may have the same.
pub fn n_forks() -> usize {
    #[cfg(unix)]
    {
        extern "C" fn is_forked() {
            N_FORKS.fetch_add(1, Ordering::Relaxed);
        }
        static COUNT: Once = Once::new();
        #[allow(unsafe_code)]
        // SAFETY: what runs in a process that was just forked changes a number and does nothing else.
        COUNT.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(is_forked)) });
    }
    N_FORKS.load(Ordering::Relaxed)
}

/// Signals to the process are for the threads that it began itself, which may wait for some. What is begun from here, as by
/// Python that a counter calls, has them blocked as well.
fn leave_signals() {
    #[cfg(unix)]
    #[allow(unsafe_code)]
    // SAFETY: a set is bits, filled here, and lives through the call. Faults of this thread itself are not in it.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigdelset(&raw mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

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
        // This thread has done its part at once; the other one ends when it is stopped.
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
    fn a_thread_is_kept_for_the_next_call_and_not_for_long() {
        let other = || in_threads(vec![false, true], &Stop::default(), |_| Ok(std::thread::current().id())).unwrap()[0];
        assert!((0..1000).any(|_| other() == other())); // ids are not given twice
        let n_left = Arc::new(AtomicUsize::new(0));
        let leave = |is_own: bool| {
            if !is_own {
                LEAVING.set(Some(Leaving(n_left.clone())));
            }
            Ok(())
        };
        in_threads(vec![false, true], &Stop::default(), leave).unwrap();
        let began = Instant::now();
        while n_left.load(Ordering::Relaxed) == 0 {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(KEPT);
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

    /// Threads come and go while others are looking for some.
    #[test]
    fn all_work_is_done_once_whenever_it_comes() {
        let n_done = AtomicUsize::new(0);
        let call = |i: u64| {
            let count = |n| Ok(n_done.fetch_add(n, Ordering::Relaxed));
            in_threads(vec![1; 4], &Stop::default(), count).unwrap();
            std::thread::sleep(KEPT * (i % 5) as u32 / 3);
        };
        std::thread::scope(|scope| (0..4).for_each(|at| _ = scope.spawn(move || (0..200).for_each(|i| call(i + at)))));
        assert_eq!(n_done.into_inner(), 4 * 200 * 4);
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
