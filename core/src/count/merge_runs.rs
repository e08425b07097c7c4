//! Merges sorted runs of counts into one: equal pre-tokens are added, with each run's counts multiplied by its weight.
//!
//! Invariant: the output is sorted with each pre-token once, sums are exact, and only the rows decide where batches end.
//! Cost: O(log runs) comparisons per row. Memory: one batch of rows per run, and the batch being made.

use crate::parallel::interrupt::{CoreError, Result, lossy};

/// Some rows of a run, sorted by the bytes of their pre-tokens.
pub trait Rows {
    /// How many rows there are.
    fn n_rows(&self) -> usize;
    /// The bytes of the pre-token of a row.
    fn pretoken(&self, row: usize) -> &[u8];
    /// The count of a row.
    fn count(&self, row: usize) -> u64;
}

/// Rows of the output. The bytes of pre-token i are `bytes[ends[i - 1]..ends[i]]`.
#[derive(Default)]
pub struct CountsBatch {
    /// The pre-tokens' bytes, one after another.
    pub bytes: Vec<u8>,
    /// Where each pre-token ends in `bytes`.
    pub ends: Vec<i32>,
    /// The count of each pre-token.
    pub counts: Vec<u64>,
}

/// The limits of a batch. It ends before the row that would exceed one of them; a longer pre-token is a batch of its own.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Rows of a batch.
    pub n_rows: usize,
    /// Bytes of the pre-tokens of a batch.
    pub n_bytes: usize,
}

/// The limits of batches of a run on disk. They are small, because merging many runs holds a batch of each in memory.
pub const RUN: Limits = Limits { n_rows: 1 << 12, n_bytes: 1 << 16 };
/// The limits of the row groups of a file of counts.
pub const GROUP: Limits = Limits { n_rows: 1 << 16, n_bytes: 1 << 22 };

/// The number of distinct pre-tokens, of occurrences, and of bytes of text.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Different pre-tokens.
    pub n_distinct: u64,
    /// Occurrences of pre-tokens.
    pub n_pretokens: u128,
    /// Bytes of all occurrences.
    pub n_bytes: u128,
}

/// How runs are added up: counts of run i are multiplied by `weights[i]` / `denominator`, and each sum is rounded once, halves up.
/// Sums of 0 and sums below `count_min` are then dropped.
pub struct Sum {
    /// The numerator of each run's weight.
    pub weights: Vec<u64>,
    /// The denominator of all weights.
    pub denominator: u64,
    /// Smaller sums are dropped.
    pub count_min: u64,
}

/// The outcome of `Merge::step`.
pub enum Step {
    /// A batch is full.
    Batch(CountsBatch),
    /// These runs must be fed before merging can continue.
    Hungry(Vec<usize>),
    /// The merge is complete.
    Done,
}

/// The merge of several runs, batch by batch.
pub struct Merge<R> {
    sum: Sum,
    limits: Limits,
    rows: Vec<Option<R>>,
    at: Vec<usize>,
    ended: Vec<bool>,
    /// The runs that have a row, as a heap with the smallest row first.
    heap: Vec<Head>,
    batch: CountsBatch,
    /// Whether the last pre-token of `batch` has no count yet. `open` is its sum so far.
    is_open: bool,
    open: u128,
    kept: Totals,
    dropped: Totals,
}

/// A run's next row, with its first 8 bytes, which decide most comparisons.
#[derive(Clone, Copy)]
struct Head {
    prefix: u64,
    run: usize,
}

impl<R: Rows> Merge<R> {
    /// A merge of as many runs as there are weights. Output batches keep within `limits`.
    pub fn new(sum: Sum, limits: Limits) -> Self {
        let n = sum.weights.len();
        Self {
            sum,
            limits,
            rows: (0..n).map(|_| None).collect(),
            at: vec![0; n],
            ended: vec![false; n],
            heap: Vec::with_capacity(n),
            batch: CountsBatch::default(),
            is_open: false,
            open: 0,
            kept: Totals::default(),
            dropped: Totals::default(),
        }
    }

    /// Gives a run its next rows; None says that it has no more.
    pub fn feed(&mut self, run: usize, rows: Option<R>) -> Result<()> {
        let is_some = |rows: &&R| rows.n_rows() > 0;
        if let (Some(old), Some(new)) = (self.rows[run].as_ref().filter(is_some), rows.as_ref().filter(is_some)) {
            in_order(old.pretoken(old.n_rows() - 1), new.pretoken(0))?;
        }
        self.at[run] = 0;
        self.ended[run] = rows.is_none();
        self.rows[run] = rows;
        self.enter(run);
        Ok(())
    }

    /// Continues until a batch is full or a run must be fed.
    pub fn step(&mut self) -> Result<Step> {
        loop {
            if self.heap.len() + self.ended.iter().filter(|ended| **ended).count() < self.ended.len() {
                let has_row = |run: usize| self.rows[run].as_ref().is_some_and(|rows| self.at[run] < rows.n_rows());
                let hungry = (0..self.ended.len()).filter(|&run| !self.ended[run] && !has_row(run)).collect();
                return Ok(Step::Hungry(hungry));
            }
            while let Some(&Head { run, .. }) = self.heap.first() {
                if let Some(batch) = self.take(run)? {
                    return Ok(Step::Batch(batch));
                }
                if self.advance(run)? {
                    break;
                }
            }
            if self.heap.is_empty() && self.ended.iter().all(|ended| *ended) {
                self.close()?;
                let last = std::mem::take(&mut self.batch);
                return Ok(if last.counts.is_empty() { Step::Done } else { Step::Batch(last) });
            }
        }
    }

    /// The totals of the output so far, and of the dropped sums.
    pub fn totals(&self) -> (Totals, Totals) {
        (self.kept, self.dropped)
    }

    /// Adds the next row of a run. If the batch is full, returns it instead; the row is then still to be added.
    fn take(&mut self, run: usize) -> Result<Option<CountsBatch>> {
        let Some(rows) = &self.rows[run] else { return Ok(None) };
        let (pretoken, count) = (rows.pretoken(self.at[run]), rows.count(self.at[run]));
        let weighted = u128::from(count) * u128::from(self.sum.weights[run]);
        if self.is_open && self.batch.last() == pretoken {
            self.open = self.open.checked_add(weighted).ok_or_else(|| beyond(pretoken))?;
            return Ok(None);
        }
        let (n_bytes, limits) = (pretoken.len(), self.limits);
        self.close()?;
        let batch = &mut self.batch;
        let is_full = batch.counts.len() >= limits.n_rows || batch.bytes.len() + n_bytes > limits.n_bytes;
        if is_full && !batch.counts.is_empty() {
            return Ok(Some(std::mem::take(batch)));
        }
        let Some(rows) = &self.rows[run] else { return Ok(None) };
        batch.bytes.extend_from_slice(rows.pretoken(self.at[run]));
        batch.ends.push(i32::try_from(batch.bytes.len()).map_err(|_| {
            CoreError::Counts(format!(
                "a pre-token has {n_bytes} bytes, more than 2^31 - 1; split the text into smaller ones."
            ))
        })?);
        (self.is_open, self.open) = (true, weighted);
        Ok(None)
    }

    /// Completes the sum of the last pre-token.
    fn close(&mut self) -> Result<()> {
        if !self.is_open {
            return Ok(());
        }
        self.is_open = false;
        let denominator = u128::from(self.sum.denominator);
        let halved = self.open.checked_add(denominator / 2).ok_or_else(|| beyond(self.batch.last()))?;
        let sum = if denominator == 1 { self.open } else { halved / denominator };
        let count = u64::try_from(sum).map_err(|_| beyond(self.batch.last()))?;
        let n_bytes = self.batch.last().len();
        let is_kept = count >= self.sum.count_min.max(1);
        let totals = if is_kept { &mut self.kept } else { &mut self.dropped };
        totals.n_distinct += 1;
        totals.n_pretokens += sum;
        totals.n_bytes += sum * n_bytes as u128;
        if is_kept {
            self.batch.counts.push(count);
        } else {
            self.batch.ends.pop();
            self.batch.bytes.truncate(self.batch.bytes.len() - n_bytes);
        }
        Ok(())
    }

    /// Moves the smallest run to its next row, and returns whether the run has none left.
    fn advance(&mut self, run: usize) -> Result<bool> {
        let Some(rows) = &self.rows[run] else { return Ok(true) };
        let next = self.at[run] + 1;
        if next < rows.n_rows() {
            let (one, other) = (rows.pretoken(next - 1), rows.pretoken(next));
            in_order(one, other)?;
            self.heap[0].prefix = prefix(other);
            self.at[run] = next;
            self.sift_down();
            return Ok(false);
        }
        self.at[run] = next;
        self.heap.swap_remove(0);
        self.sift_down();
        Ok(true)
    }

    fn enter(&mut self, run: usize) {
        let Some(first) = self.rows[run].as_ref().filter(|rows| rows.n_rows() > 0).map(|rows| prefix(rows.pretoken(0)))
        else {
            return;
        };
        self.heap.push(Head { prefix: first, run });
        let mut child = self.heap.len() - 1;
        while child > 0 && self.is_before(child, (child - 1) / 2) {
            self.heap.swap(child, (child - 1) / 2);
            child = (child - 1) / 2;
        }
    }

    fn sift_down(&mut self) {
        let mut parent = 0;
        loop {
            let mut least = parent;
            for child in [2 * parent + 1, 2 * parent + 2] {
                if child < self.heap.len() && self.is_before(child, least) {
                    least = child;
                }
            }
            if least == parent {
                return;
            }
            self.heap.swap(parent, least);
            parent = least;
        }
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.heap[one], self.heap[other]);
        one.prefix < other.prefix || one.prefix == other.prefix && self.next(one.run) < self.next(other.run)
    }

    fn next(&self, run: usize) -> Option<&[u8]> {
        self.rows[run].as_ref().map(|rows| rows.pretoken(self.at[run]))
    }
}

impl CountsBatch {
    /// The bytes of the last pre-token.
    fn last(&self) -> &[u8] {
        let n = self.ends.len();
        let start = if n > 1 { self.ends[n - 2] as usize } else { 0 };
        &self.bytes[start..]
    }
}

/// The first 8 bytes as a number that compares like them; missing bytes are zeros.
fn prefix(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or_else(
        || bytes.iter().enumerate().fold(0, |word, (i, &byte)| word | u64::from(byte) << (56 - 8 * i)),
        |first| u64::from_be_bytes(*first),
    )
}

fn in_order(one: &[u8], other: &[u8]) -> Result<()> {
    if one <= other {
        return Ok(());
    }
    Err(CoreError::Counts(format!(
        "pre-token {:?} stands after {:?}; expected them sorted by their bytes.",
        lossy(other),
        lossy(one)
    )))
}

fn beyond(pretoken: &[u8]) -> CoreError {
    CoreError::Counts(format!(
        "counts: the sum for {:?} is beyond 64 bits. Check where these tables come from.",
        lossy(pretoken)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Row = (Vec<u8>, u64);

    impl Rows for Vec<Row> {
        fn n_rows(&self) -> usize {
            self.len()
        }
        fn pretoken(&self, row: usize) -> &[u8] {
            &self[row].0
        }
        fn count(&self, row: usize) -> u64 {
            self[row].1
        }
    }

    fn rows_of(batch: &CountsBatch) -> Vec<Row> {
        let mut start = 0;
        let ends = batch.ends.iter().map(|&end| std::mem::replace(&mut start, end as usize)..end as usize);
        ends.zip(&batch.counts).map(|(range, &count)| (batch.bytes[range].to_vec(), count)).collect()
    }

    fn merged(runs: &[Vec<Row>], fed: usize, sum: Sum, limits: Limits) -> Result<Vec<Vec<Row>>> {
        let mut merge = Merge::new(sum, limits);
        let mut parts: Vec<_> = runs.iter().map(|run| run.chunks(fed)).collect();
        let mut batches = Vec::new();
        loop {
            match merge.step()? {
                Step::Batch(batch) => batches.push(rows_of(&batch)),
                Step::Hungry(hungry) => {
                    for run in hungry {
                        let next = parts[run].next().map(<[Row]>::to_vec);
                        merge.feed(run, next)?;
                    }
                }
                Step::Done => return Ok(batches),
            }
        }
    }

    fn plain(n: usize) -> Sum {
        Sum { weights: vec![1; n], denominator: 1, count_min: 1 }
    }

    fn runs() -> Vec<Vec<Row>> {
        let run = |n: u64, step: u64| {
            let rows: BTreeMap<Vec<u8>, u64> =
                (0..n).map(|i| ((i * step).to_string().repeat(1 + (i % 7) as usize).into_bytes(), i + 1)).collect();
            rows.into_iter().collect()
        };
        vec![run(200, 1), run(0, 1), run(150, 2), run(90, 3), run(1, 1)]
    }

    #[test]
    fn batches_end_where_the_rows_say_so() {
        let limits = Limits { n_rows: 10, n_bytes: 40 };
        let batches = merged(&runs(), 3, plain(5), limits).unwrap();
        assert_eq!(batches, merged(&[batches.concat()], 1000, plain(1), limits).unwrap());
        for pair in batches.windows(2) {
            let n_bytes: usize = pair[0].iter().map(|(pretoken, _)| pretoken.len()).sum();
            assert!(pair[0].len() == 10 || n_bytes + pair[1][0].0.len() > 40);
            assert!(pair[0].len() <= 10 && (n_bytes <= 40 || pair[0].len() == 1));
        }
    }
}
