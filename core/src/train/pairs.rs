//! The index of training: every pair in the text, its count, and its positions.
//!
//! Invariants: a pair's count is the number of places where it occurs now, overlaps included ("aaa" has "aa" twice), each
//! multiplied by the count of its pre-token. Its positions include every such place, and maybe places where it no longer occurs,
//! so a position is checked before use. All positions are in one array, except that a pair with a single position stores it
//! itself. The positions of a merged pair make room for new ones. When more than a third of the array must be stale, all
//! positions are checked and compacted.
//! Pairs with a count below `floor` are left out, because most pairs are rare and never merged. A pair that is left out has a
//! count of at most `absent_max`.
//! Cost: O(1) per change. A compaction costs O(positions + pairs log pairs) and happens after the array has grown by half (by a
//! quarter takes 3 % less memory and, with 7 million pre-tokens, 1.2 times as long). Memory: 4 bytes per position, 32 per entry,
//! and 16 per pair during a compaction.

use crate::pair::key_of;
use crate::parallel::interrupt::{CoreError, Result};
use crate::train::pair_map::Map;
use crate::train::words::{Found, Joint, Neighbour, Words};
use std::ops::Range;

const NONE: u32 = u32::MAX;
/// With fewer stale positions than this, a compaction is not worth it.
const STALE_MIN: usize = if cfg!(test) { 4 } else { 1 << 17 };
/// The number of different bytes.
pub const N_BYTES: usize = 256;
/// How many changes ahead their cache lines are prefetched.
const AHEAD: usize = 8;

/// `n` positions of the array, from `start` on. If there is only one position, `start` is that position itself.
#[derive(Clone, Copy, Default)]
#[repr(Rust, packed(4))]
struct Span {
    start: u64,
    n: u32,
}

impl Span {
    /// The number of positions in the array.
    fn n_held(self) -> usize {
        if self.n == 1 { 0 } else { self.n as usize }
    }
}

#[derive(Clone, Copy, Default)]
struct PairEntry {
    count: u64,
    span: Span,
    /// The index in `more` of this pair's next span, or NONE. A token that is made again makes its pairs again.
    next: u32,
}

/// All pairs of the text, with their counts and positions.
#[derive(Default)]
pub struct Pairs {
    map: Map<PairEntry>,
    positions: Vec<u32>,
    /// The part of `positions` that belonged to the pair taken last.
    free: Range<usize>,
    more: Vec<(Span, u32)>,
    before: Groups,
    after: Groups,
    floor: u64,
    absent_max: u64,
}

/// The ids of the two sides of a pair, from its key.
pub fn ids_of(key: u64) -> (u32, u32) {
    ((key >> 32) as u32, key as u32)
}

/// The check, made on every 65,536th call only.
fn now_and_then(check: impl Fn() -> Result<()>) -> impl FnMut() -> Result<()> {
    let mut n_seen = 0_u32;
    move || {
        n_seen = n_seen.wrapping_add(1);
        if n_seen.is_multiple_of(1 << 16) { check() } else { Ok(()) }
    }
}

/// A slot for each pair: a table for pairs of the first 256 tokens, which are most pairs at the start, and a map for others.
#[derive(Default)]
struct Slots {
    of_bytes: Vec<u32>,
    of_others: Map<u32>,
}

impl Slots {
    #[inline]
    fn of(&mut self, left: u32, right: u32) -> &mut u32 {
        if (left as usize) < N_BYTES && (right as usize) < N_BYTES {
            &mut self.of_bytes[left as usize * N_BYTES + right as usize]
        } else {
            self.of_others.get_or_insert(key_of(left, right), NONE).0
        }
    }
}

impl Pairs {
    /// The index of the pairs that have a count of at least `floor` and for which `keep` is true; and the number of places where any
    /// pair begins.
    pub fn of(
        words: &Words,
        cells_of: impl Fn(u32) -> usize,
        floor: u64,
        keep: impl Fn(u32, u32) -> bool,
        check: impl Fn() -> Result<()>,
    ) -> Result<(Self, usize)> {
        let mut slots = Slots { of_bytes: vec![NONE; N_BYTES * N_BYTES], of_others: Map::default() };
        let mut counted: Vec<(u64, u64, u32)> = Vec::new(); // the key, the count and the number of positions of each pair
        let mut check = now_and_then(check);
        words.pairs(&cells_of, |_, left, right, count| {
            check()?;
            let slot = slots.of(left, right);
            if *slot == NONE {
                *slot = counted.len() as u32;
                counted.push((key_of(left, right), 0, 0));
            }
            let (_, sum, n) = &mut counted[*slot as usize];
            *sum += count;
            *n += 1;
            Ok(())
        })?;
        let n_places = counted.iter().map(|&(_, _, n)| n as usize).sum();
        counted.iter_mut().for_each(|(key, count, n)| {
            let (left, right) = ids_of(*key);
            *n *= u32::from(*count >= floor && keep(left, right));
        });
        let mut n_positions = 0;
        let mut cursors: Vec<u32> = Vec::with_capacity(counted.len());
        for &(_, _, n) in &counted {
            cursors.push(if n > 0 { n_positions } else { NONE });
            n_positions += n;
        }
        // Reserved now, because merges append to it, and growing could hold it twice.
        let mut positions = Vec::with_capacity(n_positions_to_compact(n_places));
        positions.resize(n_positions as usize, 0);
        words.pairs(cells_of, |position, left, right, _| {
            check()?;
            let cursor = &mut cursors[*slots.of(left, right) as usize];
            if *cursor != NONE {
                positions[*cursor as usize] = position;
                *cursor += 1;
            }
            Ok(())
        })?;
        let mut all = Self::empty(floor);
        for ((key, count, n), end) in counted.into_iter().zip(cursors).filter(|&((_, _, n), _)| n > 0) {
            let start = (end - n) as usize;
            all.add(key, count, span_of(&positions[start..end as usize], start));
        }
        all.positions = positions;
        Ok((all, n_places))
    }

    fn empty(floor: u64) -> Self {
        Self { floor, absent_max: floor - 1, ..Self::default() }
    }

    /// The number of pairs in the index.
    pub fn n_pairs(&self) -> usize {
        self.map.len()
    }

    /// The largest count that a pair outside the index can have.
    pub fn absent_max(&self) -> u64 {
        self.absent_max
    }

    /// The lowest count with which a pair is kept.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The count of a pair, if it is in the index.
    pub fn count(&self, key: u64) -> Option<u64> {
        self.map.get(key).map(|pair| pair.count)
    }

    /// Prefetches the entry of a pair.
    pub fn prefetch(&self, key: u64) {
        self.map.prefetch(key);
    }

    /// The position of a pair that has only one.
    pub fn only_position(&self, key: u64) -> Option<u32> {
        let Span { start, n } = self.map.get(key)?.span;
        (n == 1).then_some(start as u32)
    }

    /// The key and count of every pair.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.map.iter().map(|(key, pair)| (key, pair.count))
    }

    /// Removes a pair, and puts its positions into `positions` in ascending order.
    pub fn take(&mut self, key: u64, positions: &mut Vec<u32>) {
        positions.clear();
        let Some(pair) = self.map.remove(key) else { return };
        self.free = pair.span.start as usize..pair.span.start as usize + pair.span.n_held();
        gather(&pair, &self.positions, &self.more, |_| true, positions);
    }

    /// Updates the index after a merge: adds the pairs of the new token with its neighbours (those for which `keep` is true), and
    /// subtracts the pairs that the neighbours made before. `is_new`: the token did not exist before this merge, so all places of
    /// its pairs are known now. `touched`: receives the keys of the pairs whose count has risen.
    pub fn change(
        &mut self,
        joint: &Joint,
        is_new: bool,
        found: &Found,
        keep: impl Fn(u32, u32) -> bool,
        touched: &mut Vec<u64>,
    ) -> Result<()> {
        touched.clear();
        let mut before = std::mem::take(&mut self.before);
        let mut after = std::mem::take(&mut self.after);
        before.fill(&found.before);
        after.fill(&found.after);
        let keys_before = |id| (key_of(id, joint.token), key_of(id, joint.left));
        let keys_after = |id| (key_of(joint.token, id), key_of(joint.right, id));
        self.prefetch_first(&before.all, keys_before);
        self.prefetch_first(&after.all, keys_after);
        let Self { map, positions, free, floor, absent_max, .. } = self;
        let is_in = |left, right, count: u64, left_out: &mut u64| {
            if !keep(left, right) {
                return false;
            }
            let is_in = *floor == 1 || if is_new { count >= *floor } else { map.get(key_of(left, right)).is_some() };
            if !is_in && !is_new {
                *left_out = count.max(*left_out); // adds to the part of this pair that was left out before
            }
            is_in
        };
        let (mut left_before, mut left_after) = (0, 0);
        before.place(
            positions,
            std::mem::take(free),
            |group| is_in(group.id, joint.token, group.count, &mut left_before),
            &found.before,
        );
        after.place(positions, 0..0, |group| is_in(joint.token, group.id, group.count, &mut left_after), &found.after);
        *absent_max = absent_max.saturating_add(left_before).saturating_add(left_after);
        self.make(&before.all, keys_before, touched);
        self.make(&after.all, keys_after, touched);
        // Subtracted last: of two adjacent merges, the second breaks a pair that the first has made.
        for group in &before.all {
            self.subtract(key_of(group.id, joint.left), group.count)?;
        }
        for group in &after.all {
            self.subtract(key_of(joint.right, group.id), group.count)?;
        }
        (self.before, self.after) = (before, after);
        Ok(())
    }

    /// Adds the pairs made with neighbours. `keys_of`: the keys of the pair made with a neighbour and of the pair broken.
    fn make(&mut self, groups: &[Group], keys_of: impl Fn(u32) -> (u64, u64), touched: &mut Vec<u64>) {
        for (i, group) in groups.iter().enumerate() {
            if let Some(later) = groups.get(i + AHEAD) {
                self.prefetch_both(keys_of(later.id));
            }
            if group.is_kept {
                let (made, _) = keys_of(group.id);
                self.add(made, group.count, group.span());
                touched.push(made);
            }
        }
    }

    fn prefetch_first(&self, groups: &[Group], keys_of: impl Fn(u32) -> (u64, u64)) {
        groups.iter().take(AHEAD).for_each(|group| self.prefetch_both(keys_of(group.id)));
    }

    fn prefetch_both(&self, (made, broken): (u64, u64)) {
        self.map.prefetch(made);
        self.map.prefetch(broken);
    }

    fn add(&mut self, key: u64, count: u64, span: Span) {
        let (pair, was_there) = self.map.get_or_insert(key, PairEntry { count, span, next: NONE });
        if was_there {
            pair.count += count;
            self.more.push((span, pair.next));
            pair.next = self.more.len() as u32 - 1;
        }
    }

    /// Subtracts from a pair's count. A missing pair is the merged one, or one that is not considered.
    fn subtract(&mut self, key: u64, count: u64) -> Result<()> {
        let Some(pair) = self.map.get_mut(key) else { return Ok(()) };
        pair.count = pair.count.checked_sub(count).ok_or_else(|| {
            CoreError::Internal("a pair was removed more often than it was counted; please report it.".into())
        })?;
        if pair.count < self.floor {
            self.map.remove(key);
        }
        Ok(())
    }

    /// Compacts the valid positions if many are stale. `n_places`: the number of places where a pair begins now.
    pub fn compact(
        &mut self,
        words: &Words,
        n_places: usize,
        cells_of: impl Fn(u32) -> usize,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        if self.positions.len() < n_positions_to_compact(n_places) {
            return Ok(());
        }
        let Self { map, positions, more, .. } = self;
        let stands = |key, position| {
            let (left, right) = ids_of(key);
            words.has(position, left, right, cells_of(left))
        };
        let mut spans: Vec<(u64, u64)> = Vec::new();
        let mut in_pieces: Vec<(u64, Vec<u32>)> = Vec::new();
        for (key, pair) in map.iter() {
            if pair.next != NONE {
                let mut gathered = Vec::new();
                gather(pair, positions, more, |position| stands(key, position), &mut gathered);
                in_pieces.push((key, gathered));
            } else if pair.span.n > 1 {
                spans.push((pair.span.start, key));
            }
        }
        // Going from left to right, writing never overtakes reading.
        spans.sort_unstable();
        let mut end = 0;
        for (i, &(start, key)) in spans.iter().enumerate() {
            check()?;
            if let Some(&(_, later)) = spans.get(i + AHEAD) {
                map.prefetch(later);
            }
            let Some(pair) = map.get_mut(key) else { continue };
            let first = end;
            for at in start as usize..start as usize + pair.span.n as usize {
                if let Some(&later) = positions.get(at + 2 * AHEAD) {
                    words.prefetch(later); // mostly of this pair, or of the next one
                }
                let position = positions[at];
                if stands(key, position) {
                    positions[end] = position;
                    end += 1;
                }
            }
            pair.span = span_of(&positions[first..end], first);
            end = first + pair.span.n_held();
        }
        positions.truncate(end);
        for (key, gathered) in in_pieces {
            let Some(pair) = map.get_mut(key) else { continue };
            pair.span = span_of(&gathered, positions.len());
            pair.next = NONE;
            positions.extend_from_slice(&gathered[..pair.span.n_held()]);
        }
        positions.shrink_to(n_positions_to_compact(n_places));
        *more = Vec::new();
        Ok(())
    }
}

/// The number of positions from which on they are compacted, if pairs begin in `n_places` places.
fn n_positions_to_compact(n_places: usize) -> usize {
    n_places + n_places / 2 + STALE_MIN
}

/// The span of positions that begin at `start` in the array, or of a single one.
fn span_of(positions: &[u32], start: usize) -> Span {
    match *positions {
        [only] => Span { start: u64::from(only), n: 1 },
        _ => Span { start: start as u64, n: positions.len() as u32 },
    }
}

/// Appends those of a pair's positions for which `keep` is true, in ascending order.
fn gather(pair: &PairEntry, held: &[u32], more: &[(Span, u32)], keep: impl Fn(u32) -> bool, positions: &mut Vec<u32>) {
    let first = positions.len();
    let (mut span, mut next) = (pair.span, pair.next);
    loop {
        let (start, n) = (span.start, span.n as usize);
        match n {
            1 => positions.extend(Some(start as u32).filter(|&position| keep(position))),
            _ => positions.extend(held[start as usize..][..n].iter().filter(|&&position| keep(position))),
        }
        if next == NONE {
            break;
        }
        (span, next) = more[next as usize];
    }
    if pair.next != NONE {
        positions[first..].sort_unstable();
    }
}

/// The pairs that a merge made with neighbours on one side, grouped by the neighbouring token.
#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    /// For each token, its index in `all` + 1, or 0.
    places: Vec<u32>,
}

struct Group {
    id: u32,
    n: u32,
    count: u64,
    /// The end of its positions, or its only position.
    end: u64,
    is_kept: bool,
}

impl Group {
    fn span(&self) -> Span {
        Span { start: if self.n == 1 { self.end } else { self.end - u64::from(self.n) }, n: self.n }
    }
}

impl Groups {
    /// Groups the neighbours on one side by token. This replaces the groups of the last merge.
    fn fill(&mut self, neighbours: &[Neighbour]) {
        for group in &self.all {
            self.places[group.id as usize] = 0;
        }
        self.all.clear();
        for neighbour in neighbours {
            let Neighbour { id, position, count } = *neighbour;
            if id as usize >= self.places.len() {
                self.places.resize((id as usize + 1).next_power_of_two(), 0);
            }
            let place = &mut self.places[id as usize];
            if *place == 0 {
                self.all.push(Group { id, n: 1, count, end: u64::from(position), is_kept: false });
                *place = self.all.len() as u32;
            } else {
                let group = &mut self.all[*place as usize - 1];
                group.count += count;
                group.n += 1;
            }
        }
    }

    /// Stores the positions of kept groups that have more than one, in the free part of the array or at its end.
    fn place(
        &mut self,
        positions: &mut Vec<u32>,
        free: Range<usize>,
        mut keep: impl FnMut(&Group) -> bool,
        neighbours: &[Neighbour],
    ) {
        let mut n = 0;
        for group in &mut self.all {
            group.is_kept = keep(group);
            if group.is_kept && group.n > 1 {
                n += group.n as usize;
            }
        }
        if n == 0 {
            return;
        }
        let mut start = if n <= free.len() { free.start } else { positions.len() };
        positions.resize(positions.len().max(start + n), 0);
        for group in self.all.iter_mut().filter(|group| group.is_kept && group.n > 1) {
            group.end = start as u64;
            start += group.n as usize;
        }
        for neighbour in neighbours {
            let group = &mut self.all[self.places[neighbour.id as usize] as usize - 1];
            if group.is_kept && group.n > 1 {
                positions[group.end as usize] = neighbour.position;
                group.end += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_positions_stand_where_those_of_the_merged_pair_were_if_there_is_room() {
        let mut pairs = Pairs { positions: vec![1, 2, 3, 4, 7, 8], ..Pairs::empty(1) };
        pairs.add(key_of(5, 6), 4, Span { start: 1, n: 3 });
        pairs.take(key_of(5, 6), &mut Vec::new());
        let joint = Joint { left: 5, right: 6, token: 7, left_cells: 1, right_cells: 1 };
        let at = |id, position| Neighbour { id, position, count: 1 };
        let before = vec![at(1, 20), at(2, 30), at(1, 40)];
        let after = vec![at(3, 21), at(3, 41)];
        let found = Found { before, after, ..Found::default() };
        pairs.change(&joint, true, &found, |_, _| true, &mut Vec::new()).unwrap();
        assert_eq!(pairs.positions, [1, 20, 40, 4, 7, 8, 21, 41]);
        assert_eq!(pairs.only_position(key_of(2, 7)), Some(30));
        let mut positions = Vec::new();
        pairs.take(key_of(1, 7), &mut positions);
        assert_eq!(positions, [20, 40]);
        let before = (0..3).map(|position| at(9, position)).collect(); // more than fit the two free places
        pairs.change(&joint, true, &Found { before, ..Found::default() }, |_, _| true, &mut Vec::new()).unwrap();
        assert_eq!(pairs.positions, [1, 20, 40, 4, 7, 8, 21, 41, 0, 1, 2]);
    }

    #[test]
    fn what_a_token_made_again_leaves_out_is_added_to_what_an_absent_pair_may_count() {
        let mut pairs = Pairs::empty(10);
        let joint = Joint { left: 5, right: 6, token: 7, left_cells: 1, right_cells: 1 };
        let mut change = |is_new, count| {
            let before = vec![Neighbour { id: 1, position: 3, count }, Neighbour { id: 2, position: 9, count: 1 }];
            let found = Found { before, ..Found::default() };
            pairs.change(&joint, is_new, &found, |_, _| true, &mut Vec::new()).unwrap();
            (pairs.count(key_of(1, 7)), pairs.absent_max())
        };
        assert_eq!(change(true, 4), (None, 9));
        assert_eq!(change(false, 4), (None, 13));
        assert_eq!(change(false, 2), (None, 15));
        assert_eq!(change(true, 10), (Some(10), 15));
        assert_eq!(change(false, 2), (Some(12), 16)); // 1 more from the other neighbour
    }
}
