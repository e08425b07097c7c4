//! Work in several threads, which are kept for a moment: to begin one costs its caller some 70 microseconds, and 115 pass until
//! it works; to wake one costs some 10, and 50 pass.
//!
//! Invariant: no thread works for a call that has ended, also by a panic; and one that works for a call has no other to do before.
//! Unsafe because a kept thread, unlike those of `std::thread::scope`, cannot borrow, and what a call does borrows its parts.

use crate::guard::{CoreError, Result, Stop, guarded};
use crate::spread;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, ThreadId};
use std::time::{Duration, Instant};

/// How often a thread that waits for others checks whether to go on.
const TICK: Duration = Duration::from_millis(50);
/// So long a thread looks whether the others have ended before it sleeps: their last parts take no longer.
const AWAKE: Duration = Duration::from_micros(200);
/// So long a thread without work is kept, from one batch to the next: who forks the process is to find none.
const KEPT: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });

/// What a thread is to do. It has ended when what it returns is dropped.
type Work = Box<dyn FnOnce() -> Sender<()> + Send>;

/// A thread without work.
struct Idle {
    /// Its process: one that was forked from that has this list, but none of the threads.
    process: u32,
    thread: ThreadId,
    next: Sender<Work>,
}

static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

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
    let (work, here) = (&work, spread::processor());
    let found: Vec<_> = parts.iter().map(|_| Mutex::new(None)).collect();
    let team = Team::new();
    for (part, found) in parts.into_iter().zip(&found) {
        let working = team.working.clone();
        let work: Box<dyn FnOnce() -> _ + Send + '_> = Box::new(move || {
            let done = guarded(|| {
                spread::leave(here);
                work(part)
            });
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            working
        });
        // SAFETY: only the time is changed for which it may borrow. It is over, and dropped, before the sender it returns is,
        // which `team` waits for when it is dropped; and that is before what it borrows.
        #[allow(unsafe_code)]
        let work = unsafe { std::mem::transmute::<Box<dyn FnOnce() -> _ + Send + '_>, Work>(work) };
        if let Err(error) = begin(work) {
            stop.request();
            return Err(CoreError::Internal(format!("a thread could not be begun: {error}.")));
        }
    }
    std::thread::yield_now(); // so that one that begins on this processor can leave it
    let own = last.map(|part| guarded(|| work(part)));
    team.wait(stop);
    let found = found.into_iter().map(|found| found.into_inner().unwrap_or_else(PoisonError::into_inner));
    let none = || Err(CoreError::Internal("a thread ended without a result".to_string()));
    found.chain([own]).map(|found| found.unwrap_or_else(none)).collect()
}

/// The threads that work for a call: each has a sender. Dropped, it has none itself first, and then waits.
struct Team {
    working: Sender<()>,
    ended: Ended,
}

struct Ended(Receiver<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        while self.0.recv().is_ok() {}
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

/// Has an idle thread do `work`, or a new one.
fn begin(mut work: Work) -> std::io::Result<()> {
    let process = std::process::id();
    // In a forked process, the lock may be that of a thread that is not there.
    while let Some(idle) = IDLE.try_lock().ok().and_then(|mut all| all.pop()) {
        if idle.process != process {
            std::mem::forget(idle); // as may be what is in there
            continue;
        }
        match idle.next.send(work) {
            Ok(()) => return Ok(()),
            Err(SendError(unsent)) => work = unsent,
        }
    }
    Builder::new().spawn(move || serve(process, work)).map(|_| ())
}

/// Does `work`, and what else there is to do before long.
fn serve(process: u32, mut work: Work) {
    let thread = std::thread::current().id();
    let take_off = || {
        let mut all = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|one| one.process == process && one.thread == thread);
        at.map(|at| all.swap_remove(at)).is_some()
    };
    loop {
        let working = work();
        let (next, given) = channel();
        let Ok(mut all) = IDLE.try_lock() else { return };
        all.push(Idle { process, thread, next });
        drop((all, working));
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

    #[test]
    fn threads_are_kept_for_the_next_call_and_not_for_long() {
        let ids = || {
            let threads = Mutex::new(Vec::new());
            let own = std::thread::current().id();
            let add = |_| {
                std::thread::sleep(Duration::from_micros(100)); // so that each part has a thread of its own
                threads.lock().unwrap().push(std::thread::current().id());
                Ok(())
            };
            in_threads(vec![(); 3], &Stop::default(), add).unwrap();
            let threads = threads.into_inner().unwrap();
            assert!(threads.contains(&own));
            threads
        };
        let met: std::collections::HashSet<_> = (0..100).flat_map(|_| ids()).collect();
        assert!(met.len() < 100, "{}", met.len());
        std::thread::sleep(KEPT * 50);
        assert!(ids().iter().all(|one| *one == std::thread::current().id() || !met.contains(one)));
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
    fn a_panic_of_who_lent_work_waits_for_it() {
        let (team, is_done) = (Team::new(), Arc::new(AtomicBool::new(false)));
        let (working, done) = (team.working.clone(), is_done.clone());
        begin(Box::new(move || {
            std::thread::sleep(Duration::from_millis(20));
            done.store(true, Ordering::Relaxed);
            working
        }))
        .unwrap();
        let panicking = std::panic::AssertUnwindSafe(move || {
            let _team = team;
            panic!("while it works");
        });
        assert!(std::panic::catch_unwind(panicking).is_err() && is_done.load(Ordering::Relaxed));
    }
}
