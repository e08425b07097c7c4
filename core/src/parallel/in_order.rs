//! Several threads process the pieces of a batch, and the results are put together in the order of the batch.
//!
//! Invariant: the number of threads changes neither the results nor which of several errors is reported.
//! Cost: each result is copied once; with `put`, several threads copy at a time. A piece whose turn comes while it is being made
//! needs no copy, because its place is known. Early results wait: a few, or more while the thread before them is stopped.

use crate::parallel::interrupt::{CoreError, Result, Stop};
use crate::parallel::threads::in_threads;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The smallest weight limit of a piece is the largest one divided by this.
const LEAST_PART: usize = 8;

/// Cuts 0..n into ranges of about `weight_max`; a heavier element is a range of its own. With several threads the last ranges are
/// smaller, so that `threads` that take one range after another finish at about the same time.
pub fn pieces(n: usize, threads: usize, weight_max: usize, weight: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut left: usize = (0..n).map(&weight).sum();
    let least = if threads > 1 { weight_max / LEAST_PART } else { weight_max };
    let limit = |left: usize| (left / 2 / threads.max(1)).clamp(least, weight_max);
    let (mut start, mut sum, mut most) = (0, 0, limit(left));
    for i in 0..n {
        let more = weight(i);
        if i > start && sum + more > most {
            found.push(start..i);
            left -= sum;
            (start, sum, most) = (i, 0, limit(left));
        }
        sum += more;
    }
    if start < n {
        found.push(start..n);
    }
    found
}

/// How often a thread tries a lock before it sleeps: about 50 microseconds.
const TRIES: usize = 200;

/// Tells whether all pieces before this one are finished and have their places.
pub struct Turn<'n> {
    next: &'n AtomicUsize,
    at: usize,
}

impl Turn<'_> {
    /// Once true, this stays true until the piece is claimed.
    pub fn has_come(&self) -> bool {
        self.next.load(Ordering::Acquire) == self.at
    }
}

struct Order<T> {
    early: BTreeMap<usize, T>,
    spare: Vec<T>,
    /// The first failed piece, in the order of the batch, and its error.
    failed: Option<(usize, CoreError)>,
}

/// Runs `work` for every piece. `claim` gets the results in order, one at a time, and says where each goes. `put` puts it there,
/// in several threads at a time. One of the two leaves the result empty.
///
/// `hire` makes a thread's own data and its first empty result, and `release` gets both back. `work` fills an empty result, and
/// may ask whether it is its turn.
pub fn in_order<W, T: Default + Send, P>(
    pieces: &[Range<usize>],
    threads: usize,
    stop: &Stop,
    (hire, release): (impl Fn() -> Result<(W, T)> + Sync, impl Fn(W, T) + Sync),
    work: impl Fn(&mut W, Range<usize>, &mut T, &Turn) -> Result<()> + Sync,
    claim: impl FnMut(&mut T) -> P + Send,
    put: impl Fn(P, &mut T) + Sync,
) -> Result<()> {
    let order = Mutex::new((Order { early: BTreeMap::new(), spare: Vec::new(), failed: None }, claim));
    let (counter, limit) = (AtomicUsize::new(0), AtomicUsize::new(pieces.len()));
    let next = AtomicUsize::new(0);
    in_threads((0..threads.clamp(1, pieces.len().max(1))).collect(), stop, |_| {
        let (mut own, mut result) = hire()?;
        let mut others = Vec::new();
        loop {
            let at = counter.fetch_add(1, Ordering::Relaxed);
            if at >= limit.load(Ordering::Relaxed) {
                release(own, result);
                return Ok(());
            }
            let turn = Turn { next: &next, at };
            let done = work(&mut own, pieces[at].clone(), &mut result, &turn);
            let mut locked = locked(&order);
            let (order, claim) = &mut *locked;
            order.spare.extend(others.drain(..).map(|(_, empty)| empty));
            if let Err(error) = done {
                // Earlier pieces are still being worked on. If one of them fails too, its error is the one to report.
                limit.fetch_min(at, Ordering::Relaxed);
                if order.failed.as_ref().is_none_or(|(first, _)| at < *first) {
                    order.failed = Some((at, error));
                }
                return Ok(());
            }
            if !turn.has_come() {
                let empty = order.spare.pop().unwrap_or_default();
                order.early.insert(at, std::mem::replace(&mut result, empty));
                continue;
            }
            let place = claim(&mut result);
            let mut n_claimed = at + 1;
            while let Some(mut early) = order.early.remove(&n_claimed) {
                others.push((Some(claim(&mut early)), early));
                n_claimed += 1;
            }
            next.store(n_claimed, Ordering::Release);
            drop(locked);
            put(place, &mut result);
            for (place, early) in &mut others {
                place.take().into_iter().for_each(|place| put(place, early));
            }
        }
    })?;
    let (order, _) = order.into_inner().unwrap_or_else(PoisonError::into_inner);
    order.failed.map_or(Ok(()), |(_, error)| Err(error))
}

/// Locks a mutex that is mostly held briefly. A waiter does not sleep at once, because it might wake on its waker's processor and
/// share that one for the rest of the batch.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..TRIES {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_and_a_heavy_element_stands_alone() {
        assert_eq!(pieces(6, 2, 10, |i| [4, 4, 30, 1, 2, 20][i]), [0..2, 2..3, 3..5, 5..6]);
        assert_eq!(pieces(1, 1, 10, |_| 30), vec![0..1]);
        assert!(pieces(0, 1, 10, |_| 1).is_empty());
    }

    #[test]
    fn the_last_pieces_are_smaller_for_more_threads_sooner() {
        let weights = |threads| -> Vec<usize> { pieces(100, threads, 16, |_| 1).iter().map(Range::len).collect() };
        assert_eq!(weights(1), [16, 16, 16, 16, 16, 16, 4]);
        assert_eq!(weights(2)[..6], [16, 16, 16, 13, 9, 7]);
        for threads in 1..20 {
            let found = weights(threads);
            assert!(found.iter().sum::<usize>() == 100 && found.is_sorted_by(|one, next| one >= next));
            assert!(found.iter().all(|weight| (1..=16).contains(weight)) && found.len() < 60);
        }
    }

    #[test]
    fn results_come_in_order_and_the_first_failure_is_told() {
        let (cut, hired) = (pieces(100, 1, 1, |_| 1), (|| Ok(((), Vec::new())), |(), _| ()));
        for threads in 1..5 {
            let mut all = Vec::new();
            let n_done = AtomicUsize::new(0);
            let keep = |_: &mut (), range: Range<usize>, out: &mut Vec<usize>, turn: &Turn| {
                for _ in 0..range.start % 7 {
                    std::thread::yield_now();
                }
                assert!(!turn.has_come() || n_done.load(Ordering::Relaxed) == range.start);
                out.extend(range);
                Ok(())
            };
            let take = |out: &mut Vec<usize>| {
                n_done.fetch_add(out.len(), Ordering::Relaxed);
                all.append(out);
            };
            in_order(&cut, threads, &Stop::default(), hired, keep, take, |(), _| ()).unwrap();
            assert!(all.iter().copied().eq(0..100));
            let fail = |_: &mut (), range: Range<usize>, _: &mut Vec<usize>, _: &Turn| match range.start {
                at if at > 40 => Err(CoreError::Text(at.to_string())),
                _ => Ok(()),
            };
            let found = in_order(&cut, threads, &Stop::default(), hired, fail, |_| (), |(), _| ());
            assert_eq!(found, Err(CoreError::Text("41".to_string())));
        }
    }
}
