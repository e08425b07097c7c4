//! Approximate counts of pre-tokens in little memory: lossy counting (Manku and Motwani 2002).
//!
//! Invariant: let n be the pre-tokens seen and b = n / width, rounded down. A kept count is never above the true count, and below
//! it by at most b. A pre-token that is not kept has a true count of at most b. Only the texts in their order decide the state.
//! Cost: one probe per pre-token. O(width · log(n / width)) entries at worst, far fewer for text.

use crate::count::Drain;
use crate::count::merge_runs::Limits;
use crate::count::table::Table;
use crate::parallel::interrupt::{CoreError, Result, Stop};
use crate::split::pattern::Pattern;

/// The size of the first table. A table that keeps most entries when pruned is doubled. A constant, so that memory settings change
/// no count.
const TABLE_BYTES_MIN: usize = 1 << 20;

/// A count, and the most that may have been forgotten before it was begun.
#[derive(Default, Clone, Copy)]
pub struct Approximate {
    count: u64,
    missed_max: u64,
}

/// Approximate counts of pre-tokens.
pub struct Lossy {
    table: Table<Approximate>,
    width: u64,
    n_pretokens: u64,
    missed_max: u64,
    memory_bytes_max: usize,
    is_broken: bool,
}

impl Lossy {
    /// An empty count. A count may be too low by at most the pre-tokens seen / `width`.
    pub fn new(width: u64, memory_bytes_max: usize) -> Self {
        let table = Table::new(TABLE_BYTES_MIN);
        Self { table, width: width.max(1), n_pretokens: 0, missed_max: 0, memory_bytes_max, is_broken: false }
    }

    /// Counts the pre-tokens of texts, in their order. After an error the counts cannot be used any more.
    pub fn update<'t>(&mut self, pattern: &Pattern, texts: impl Iterator<Item = &'t str>, stop: &Stop) -> Result<()> {
        self.check()?;
        self.is_broken = true;
        for (i, text) in texts.enumerate() {
            if i % 64 == 0 {
                stop.check()?;
            }
            pattern.split(text, stop, &mut |piece| self.add(piece.as_bytes()))?;
        }
        self.is_broken = false;
        Ok(())
    }

    fn add(&mut self, pretoken: &[u8]) -> Result<()> {
        self.n_pretokens += 1;
        let mut is_second = false;
        loop {
            if let Some(found) = self.table.slot(pretoken) {
                if found.count == 0 {
                    found.missed_max = self.missed_max;
                }
                found.count += 1;
                return Ok(());
            }
            self.prune(is_second)?;
            is_second = true;
        }
    }

    /// Forgets pre-tokens whose true count may be at most n / width. This is done only when the table is full, which is as late as
    /// possible, because a pre-token that is never forgotten is counted exactly. `is_larger`: moves to a larger table in any case.
    #[cold]
    fn prune(&mut self, is_larger: bool) -> Result<()> {
        self.missed_max = self.n_pretokens / self.width;
        let is_kept = |one: &Approximate| one.count + one.missed_max > self.missed_max;
        let n_kept = self.table.iter().filter(|(_, one)| is_kept(one)).count();
        let bytes_max = self.table.bytes_max();
        let doubled = if is_larger || n_kept * 2 > self.table.len() { bytes_max * 2 } else { bytes_max };
        if bytes_max + doubled > self.memory_bytes_max {
            return Err(CoreError::Counts(format!(
                "approximate counting needs more memory than memory_mb_max allows: {n_kept} pre-tokens are to be kept after \
                 {}. Raise memory_mb_max, or the error.",
                self.n_pretokens
            )));
        }
        // In sorted order: when a table is full depends on the order in which longer pre-tokens came.
        let all = std::mem::replace(&mut self.table, Table::new(0)).into_sorted();
        let mut pruned = Table::new(doubled);
        for row in (0..all.len()).filter(|&row| is_kept(all.value(row))) {
            let place = pruned.slot(all.bytes(row));
            *place.ok_or_else(|| CoreError::Internal("a pruned table is full".into()))? = *all.value(row);
        }
        self.table = pruned;
        Ok(())
    }

    /// The memory of the table, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// The most by which any count may be too low.
    pub fn missed_max(&self) -> u64 {
        self.missed_max
    }

    /// Takes the counts out and starts again with none.
    pub fn drain(&mut self, limits: Limits) -> Result<Drain<Approximate>> {
        self.check()?;
        let empty = Self::new(self.width, self.memory_bytes_max);
        Drain::new(vec![std::mem::replace(self, empty).table.into_sorted()], limits)
    }

    fn check(&self) -> Result<()> {
        if self.is_broken { Err(crate::count::broken()) } else { Ok(()) }
    }
}

impl From<Approximate> for u64 {
    fn from(one: Approximate) -> Self {
        one.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::merge_runs::GROUP;
    use std::collections::BTreeMap;

    fn rows(drain: &mut Drain<Approximate>) -> BTreeMap<Vec<u8>, u64> {
        let mut found = BTreeMap::new();
        while let Some(batch) = drain.next_batch().unwrap() {
            let mut start = 0;
            for (&end, &count) in batch.ends.iter().zip(&batch.counts) {
                found.insert(batch.bytes[start..end as usize].to_vec(), count);
                start = end as usize;
            }
        }
        found
    }

    #[test]
    fn counts_are_too_low_by_no_more_than_the_bound_and_what_is_frequent_is_there() {
        let mut state = 1_u64;
        let mut exact = BTreeMap::new();
        let mut lossy = Lossy::new(2_000, 64 << 20);
        let n = 400_000_u64;
        for _ in 0..n {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let rare = state >> 33;
            let pretoken = if rare.is_multiple_of(3) { rare % 50 } else { rare }.to_string().into_bytes();
            lossy.add(&pretoken).unwrap();
            *exact.entry(pretoken).or_insert(0) += 1;
        }
        let missed_max = lossy.missed_max();
        assert!(missed_max > 0 && missed_max <= n / 2_000);
        let found = rows(&mut lossy.drain(GROUP).unwrap());
        assert!(found.len() * 2 < exact.len());
        for (pretoken, count) in &exact {
            let approximate = found.get(pretoken).copied().unwrap_or(0);
            assert!(approximate <= *count && count - approximate <= missed_max, "{count} {approximate} {missed_max}");
        }
        assert!(lossy.drain(GROUP).unwrap().next_batch().unwrap().is_none());
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let mut lossy = Lossy::new(1_000_000_000, 3 << 20);
        let found = (0..200_000_u64).try_for_each(|n| lossy.add(&n.to_le_bytes()));
        assert!(matches!(found, Err(CoreError::Counts(what)) if what.contains("Raise memory_mb_max")));
    }
}
