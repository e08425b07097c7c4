//! Makes the threads of a call run on separate processors.
//!
//! Some systems, virtual machines among them, start a thread on its parent's processor although others are idle, or wake a thread
//! on its waker's processor. Two threads then shared a processor for 3 to 30 ms: over 16 MB of text, two cores were 1.1 to 1.4
//! times as fast as one, and with this 1.9 times.

/// The processor on which this thread runs; None if it is unknown.
pub fn processor() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return Some(rustix::thread::sched_getcpu()).filter(|&at| at < rustix::thread::CpuSet::MAX_CPU);
    #[cfg(not(target_os = "linux"))]
    None
}

/// Moves this thread off the named processor, if it runs there and may run elsewhere. Returns whether it moved.
pub fn leave(named: Option<usize>) -> bool {
    if named.is_none() || processor() != named {
        return false;
    }
    #[cfg(target_os = "linux")]
    if let (Some(named), Ok(all)) = (named, rustix::thread::sched_getaffinity(None)) {
        let mut others = all;
        others.unset(named);
        // Without other processors the system refuses, and the thread stays. In the end its allowed processors are as before.
        return rustix::thread::sched_setaffinity(None, &others).is_ok()
            && rustix::thread::sched_setaffinity(None, &all).is_ok();
    }
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    #[test]
    fn a_thread_leaves_the_processor_named_and_no_other() {
        let all = sched_getaffinity(None).unwrap();
        let stays = || !leave(None) && !leave(Some(CpuSet::MAX_CPU - 1));
        // Several tries, because the system may also move the thread between two calls.
        let leaves = || (0..100).any(|_| leave(processor()));
        assert!(stays());
        assert_eq!(leaves(), all.count() > 1);
        assert!(sched_getaffinity(None).unwrap() == all);
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&i| all.is_set(i)).unwrap());
        sched_setaffinity(None, &one).unwrap();
        let was_right = stays() && !leaves();
        sched_setaffinity(None, &all).unwrap();
        assert!(was_right);
    }
}
