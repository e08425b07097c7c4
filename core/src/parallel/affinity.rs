//! Threads that work side by side, each on a processor of its own.
//!
//! Some systems, those of virtual machines among them, begin a thread on its parent's processor though others are idle, or wake
//! it where the one runs that wakes it. Two threads then shared a processor for 3 to 30 ms: over 16 MB of text two cores were
//! 1.1 to 1.4 times as fast as one, and 1.9 times with this alone.

/// The processor on which this thread runs; None where that cannot be told.
pub fn processor() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return Some(rustix::thread::sched_getcpu()).filter(|&at| at < rustix::thread::CpuSet::MAX_CPU);
    #[cfg(not(target_os = "linux"))]
    None
}

/// Takes this thread to another processor if it runs on the one named, and may run on others; whether it did.
pub fn leave(named: Option<usize>) -> bool {
    if named.is_none() || processor() != named {
        return false;
    }
    #[cfg(target_os = "linux")]
    if let (Some(named), Ok(all)) = (named, rustix::thread::sched_getaffinity(None)) {
        let mut others = all;
        others.unset(named);
        // With no others, which the system refuses, it stays. What it may run on is as before in the end.
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
        // Between two questions the system may move it as well.
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
