//! Pre-tokens → counts: exact, in u64, in one table per thread. A full table is sorted and spilled as a run.
//!
//! Invariant: the tables never exceed their memory, and the sum of all runs and the rest depends only on the texts.
//! Cost: O(bytes of text) and one probe per pre-token. Memory: 32 to 64 bytes per distinct pre-token of up to 15 bytes.

pub mod merge_runs;
pub mod table;

use crate::count::merge_runs::{CountsBatch, Limits, Merge, RUN, Rows, Step, Sum};
use crate::count::table::{Sorted, Table};
use crate::parallel::interrupt::{CoreError, Result, Stop, cut, lossy};
use crate::parallel::threads::in_threads;
use crate::split::pattern::Pattern;
use crate::split::sink::Sink;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The text that a thread takes at a time. Less than this is counted in the calling thread.
const RANGE_BYTES: usize = 1 << 20;
/// The smallest useful table. Smaller ones would be spilled all the time, so fewer threads are used instead.
const TABLE_BYTES_MIN: usize = 1 << 19;

/// Receives the content of a full table.
pub type Spill<'s> = dyn Fn(Drain) -> Result<()> + Sync + 's;

/// Counts of pre-tokens.
pub struct Counts {
    tables: Vec<Table<u64>>,
    table_bytes_max: usize,
    /// The table for the next small batch of texts, which one thread counts.
    turn: usize,
    is_broken: bool,
}

/// The pre-tokens of sorted tables, in order, in batches.
pub struct Drain(Merge<TableRows>);

/// The rows of a sorted table with short strings, or those with long strings.
struct TableRows {
    table: Arc<Sorted<u64>>,
    rows: Range<usize>,
}

impl Counts {
    /// `memory_bytes_max`: the memory of all tables together.
    pub fn new(threads: usize, memory_bytes_max: usize) -> Self {
        let n_tables = threads.clamp(1, (memory_bytes_max / TABLE_BYTES_MIN).max(1));
        let table_bytes_max = memory_bytes_max / n_tables;
        let tables = (0..n_tables).map(|_| Table::new(table_bytes_max)).collect();
        Self { tables, table_bytes_max, turn: 0, is_broken: false }
    }

    /// Counts the pre-tokens of the texts `text(i)` for i in 0..n. `bytes_before(i)`: the bytes of all texts before text i.
    ///
    /// After an error some texts are counted and others are not, so the counts cannot be used any more.
    pub fn update<'t>(
        &mut self,
        pattern: &Pattern,
        n: usize,
        text: impl Fn(usize) -> &'t str + Sync,
        bytes_before: impl Fn(usize) -> usize,
        spill: &Spill<'_>,
        stop: &Stop,
    ) -> Result<()> {
        self.check()?;
        let n_bytes = bytes_before(n) - bytes_before(0);
        let ranges = cut(n, n_bytes.div_ceil(RANGE_BYTES).max(1), bytes_before);
        let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let count = |table: &mut Table<u64>| {
            let pattern = pattern.clone();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= ranges.len().min(failed.load(Ordering::Relaxed)) {
                    return Ok(None);
                }
                if let Err(error) = count_range(table, &pattern, ranges[i].clone(), &text, spill, stop) {
                    failed.fetch_min(i, Ordering::Relaxed);
                    return Ok(Some((i, error)));
                }
            }
        };
        self.is_broken = true;
        let tables: Vec<_> = if ranges.len() > 1 {
            self.tables.iter_mut().collect()
        } else {
            self.turn = (self.turn + 1) % self.tables.len();
            vec![&mut self.tables[self.turn]]
        };
        // Ranges are taken in order, so any number of threads finds the same first error.
        let first = in_threads(tables, stop, count)?.into_iter().flatten().min_by_key(|(range, _)| *range);
        match first {
            Some((_, error)) => Err(error),
            None => {
                stop.check()?; // what this thread found while it waited for the others ends the call
                self.is_broken = false;
                Ok(())
            }
        }
    }

    /// Counts a pre-token `n` times. After an error the counts cannot be used any more.
    pub fn add(&mut self, pretoken: &[u8], n: u64, spill: &Spill<'_>) -> Result<()> {
        self.check()?;
        let table = &mut self.tables[0];
        let added = match table.slot(pretoken) {
            Some(count) => increase(count, n, pretoken),
            None => spill_table(table, pretoken, spill).and_then(|()| {
                table.slot(pretoken).map_or_else(|| Err(too_long(pretoken)), |count| increase(count, n, pretoken))
            }),
        };
        self.is_broken = added.is_err();
        added
    }

    /// The memory of all tables, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.tables.iter().map(Table::memory_bytes).sum()
    }

    /// Takes the counts out of all tables. Each table is sorted in a thread of its own.
    pub fn drain(&mut self, limits: Limits) -> Result<Drain> {
        self.check()?;
        let empty = || Table::new(self.table_bytes_max);
        let tables: Vec<_> = self.tables.iter_mut().map(|table| std::mem::replace(table, empty())).collect();
        let sorted = in_threads(tables, &Stop::default(), |table| Ok(table.into_sorted()))?;
        Drain::new(sorted, limits)
    }

    fn check(&self) -> Result<()> {
        let what =
            "an update of this counter ended early, and some of its texts are counted. Begin again with a new one.";
        if self.is_broken { Err(CoreError::Counts(what.into())) } else { Ok(()) }
    }
}

fn count_range<'t>(
    table: &mut Table<u64>,
    pattern: &Pattern,
    range: Range<usize>,
    text: &impl Fn(usize) -> &'t str,
    spill: &Spill<'_>,
    stop: &Stop,
) -> Result<()> {
    for i in range {
        if i % 64 == 0 {
            stop.check()?;
        }
        let text = text(i);
        pattern.split_into(text, stop, &mut Tally { table, text: text.as_bytes(), spill })?;
    }
    Ok(())
}

/// The counting of one text.
struct Tally<'t> {
    table: &'t mut Table<u64>,
    text: &'t [u8],
    spill: &'t Spill<'t>,
}

impl Sink for Tally<'_> {
    #[inline(always)]
    fn put(&mut self, from: usize, to: usize) -> Result<()> {
        let pretoken = &self.text[from..to];
        match self.table.slot_of(pretoken, self.text) {
            Some(count) => increment(count, pretoken),
            None => self.put_after_spilling(pretoken),
        }
    }
}

impl Tally<'_> {
    #[cold]
    #[inline(never)]
    fn put_after_spilling(&mut self, pretoken: &[u8]) -> Result<()> {
        spill_table(self.table, pretoken, self.spill)?;
        self.table.slot(pretoken).map_or_else(|| Err(too_long(pretoken)), |count| increment(count, pretoken))
    }
}

#[inline]
fn increment(count: &mut u64, pretoken: &[u8]) -> Result<()> {
    increase(count, 1, pretoken)
}

#[inline]
fn increase(count: &mut u64, n: u64, pretoken: &[u8]) -> Result<()> {
    *count = count
        .checked_add(n)
        .ok_or_else(|| CoreError::Counts(format!("the count of {:?} exceeds 64 bits.", lossy(pretoken))))?;
    Ok(())
}

/// Spills the content of the table, and leaves an empty one with room for `next`.
#[cold]
fn spill_table(table: &mut Table<u64>, next: &[u8], spill: &Spill<'_>) -> Result<()> {
    let bytes_max = table.bytes_max();
    let sorted = std::mem::replace(table, Table::new(bytes_max)).into_sorted();
    let shape = sorted.shape();
    if !sorted.is_empty() {
        spill(Drain::new(vec![sorted], RUN)?)?;
    }
    if next.len() < bytes_max / 16 {
        *table = Table::like(shape, bytes_max);
    }
    Ok(())
}

fn too_long(pretoken: &[u8]) -> CoreError {
    CoreError::Counts(format!(
        "a pre-token of {} bytes ({:?}) does not fit in what a table of counts may hold. Raise memory_mb_max, take fewer \
         threads, or choose a pattern that splits finer.",
        pretoken.len(),
        lossy(pretoken)
    ))
}

impl Drain {
    /// A drain of the rows of all `tables`, in the order of their bytes.
    pub fn new(tables: Vec<Sorted<u64>>, limits: Limits) -> Result<Self> {
        let tables: Vec<_> = tables.into_iter().map(Arc::new).collect();
        let parts: Vec<_> = tables
            .iter()
            .flat_map(|table| [0..table.n_short(), table.n_short()..table.len()].map(|rows| (table, rows)))
            .filter(|(_, rows)| !rows.is_empty())
            .map(|(table, rows)| TableRows { table: Arc::clone(table), rows })
            .collect();
        let mut merge = Merge::new(Sum { weights: vec![1; parts.len()], denominator: 1, count_min: 1 }, limits);
        for (run, part) in parts.into_iter().enumerate() {
            merge.feed(run, Some(part))?;
        }
        Ok(Self(merge))
    }

    /// The next rows; None at the end.
    pub fn next_batch(&mut self) -> Result<Option<CountsBatch>> {
        loop {
            match self.0.step()? {
                Step::Batch(batch) => return Ok(Some(batch)),
                Step::Hungry(runs) => runs.into_iter().try_for_each(|run| self.0.feed(run, None))?,
                Step::Done => return Ok(None),
            }
        }
    }
}

impl Rows for TableRows {
    fn n_rows(&self) -> usize {
        self.rows.len()
    }

    #[inline]
    fn pretoken(&self, row: usize) -> &[u8] {
        self.table.bytes(self.rows.start + row)
    }

    #[inline]
    fn count(&self, row: usize) -> u64 {
        *self.table.value(self.rows.start + row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::merge_runs::GROUP;

    #[test]
    fn a_count_that_exceeds_64_bits_is_an_error() {
        let mut count = u64::MAX;
        assert!(matches!(increment(&mut count, b"x"), Err(CoreError::Counts(_))));
        assert_eq!(count, u64::MAX);
    }

    #[test]
    fn after_an_update_that_ended_early_nothing_comes_out() {
        let pattern = Pattern::new(&[r"((a|b|ab)*)(?=c)bc"]).unwrap();
        let (hard, mut counts) = ("ab".repeat(64), Counts::new(1, usize::MAX));
        let spill = |_| Ok(());
        let found = counts.update(&pattern, 1, |_| &hard, |i| i * hard.len(), &spill, &Stop::default());
        assert!(matches!(found, Err(CoreError::Pattern(_))));
        assert!(matches!(counts.drain(GROUP), Err(CoreError::Counts(what)) if what.contains("ended early")));
    }
}
