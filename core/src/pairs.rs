//! The index of training: every pair that stands in the text, how often, and where.
//!
//! Invariants: a pair's count is the number of places where it stands now, overlaps included ("aaa" has "aa" twice),
//! times the counts of their pre-tokens; its positions name every such place, and maybe places where it no longer stands,
//! so a position is checked on use. Positions of all pairs made by one merge share one array, freed with the last of
//! them; when more than half of all positions held must be stale, all are checked and copied together.
//! Cost: O(1) a change, O(positions) a compaction, which a doubling of them pays for; 4 bytes a position, 40 a pair.

use crate::guard::{CoreError, Result};
use crate::merge::key_of;
use crate::words::{Found, Joint, Neighbour, Words};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

const NONE: u32 = u32::MAX;
/// So many stale positions are not worth a compaction.
const STALE_MIN: usize = 1 << 20;
const N_BYTES: usize = 256;

#[derive(Clone, Copy)]
struct Span {
    chunk: u32,
    start: u32,
    end: u32,
}

struct Pair {
    count: u64,
    span: Span,
    /// Where in `more` this pair's next span stands, or NONE: a token that is made again makes its pairs again.
    next: u32,
}

struct Chunk {
    positions: Vec<u32>,
    n_spans: u32,
}

/// Pairs of some cells, counted before the first merge: key, count and where their positions end.
pub struct Counted {
    pairs: Vec<(u64, u64, u32)>,
    positions: Vec<u32>,
}

#[derive(Default)]
pub struct Pairs {
    map: FxHashMap<u64, Pair>,
    chunks: Vec<Chunk>,
    more: Vec<(Span, u32)>,
    n_held: usize,
    before: Groups,
    after: Groups,
}

pub fn ids_of(key: u64) -> (u32, u32) {
    ((key >> 32) as u32, key as u32)
}

/// Counts the pairs that begin in some cells; `keep` says which are looked at.
pub fn count(
    words: &Words,
    cells: Range<usize>,
    cells_of: impl Fn(u32) -> usize + Copy,
    keep: impl Fn(u32, u32) -> bool,
    check: impl Fn() -> Result<()>,
) -> Result<Counted> {
    let mut slots = Slots { of_bytes: vec![NONE; N_BYTES * N_BYTES], of_others: FxHashMap::default() };
    let mut pairs: Vec<(u64, u64, u32)> = Vec::new();
    let mut n_seen = 0_u32;
    words.pairs(cells.clone(), cells_of, |_, left, right, count| {
        n_seen = n_seen.wrapping_add(1);
        if n_seen.is_multiple_of(1 << 16) {
            check()?;
        }
        let slot = slots.of(left, right);
        if *slot == NONE {
            *slot = pairs.len() as u32;
            pairs.push((key_of(left, right), 0, 0));
        }
        let (_, sum, n_positions) = &mut pairs[*slot as usize];
        *sum += count;
        *n_positions += 1;
        Ok(())
    })?;
    let mut n_positions = 0;
    let mut cursors = Vec::with_capacity(pairs.len());
    for (key, _, n) in &mut pairs {
        let (left, right) = ids_of(*key);
        cursors.push(if keep(left, right) { n_positions } else { NONE });
        if keep(left, right) {
            n_positions += *n;
        }
        *n = n_positions;
    }
    let mut positions = vec![0; n_positions as usize];
    words.pairs(cells, cells_of, |position, left, right, _| {
        let cursor = &mut cursors[*slots.of(left, right) as usize];
        if *cursor != NONE {
            positions[*cursor as usize] = position;
            *cursor += 1;
        }
        Ok(())
    })?;
    pairs.retain(|&(key, ..)| {
        let (left, right) = ids_of(key);
        keep(left, right)
    });
    Ok(Counted { pairs, positions })
}

/// A place for each pair: a table for pairs of the first 256 tokens, which are most at the start, and a map for others.
struct Slots {
    of_bytes: Vec<u32>,
    of_others: FxHashMap<u64, u32>,
}

impl Slots {
    #[inline]
    fn of(&mut self, left: u32, right: u32) -> &mut u32 {
        if (left as usize) < N_BYTES && (right as usize) < N_BYTES {
            &mut self.of_bytes[left as usize * N_BYTES + right as usize]
        } else {
            self.of_others.entry(key_of(left, right)).or_insert(NONE)
        }
    }
}

impl Pairs {
    /// The pairs counted in all parts of the cells, the parts in order.
    pub fn new(parts: Vec<Counted>) -> Self {
        let mut all = Self::default();
        for Counted { pairs, positions } in parts {
            let chunk = all.add_chunk(positions);
            let mut start = 0;
            for (key, count, end) in pairs {
                all.add(key, count, Span { chunk, start, end });
                start = end;
            }
            all.free_if_unused(chunk);
        }
        all
    }

    pub fn n_pairs(&self) -> usize {
        self.map.len()
    }

    pub fn count(&self, key: u64) -> Option<u64> {
        self.map.get(&key).map(|pair| pair.count)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.map.iter().map(|(&key, pair)| (key, pair.count))
    }

    /// Takes a pair out; its positions, in ascending order, are put into `positions`.
    pub fn take(&mut self, key: u64, positions: &mut Vec<u32>) {
        positions.clear();
        let Some(pair) = self.map.remove(&key) else { return };
        let (mut span, mut next) = (pair.span, pair.next);
        loop {
            positions
                .extend_from_slice(&self.chunks[span.chunk as usize].positions[span.start as usize..span.end as usize]);
            self.release(span.chunk);
            if next == NONE {
                break;
            }
            (span, next) = self.more[next as usize];
        }
        if pair.next != NONE {
            positions.sort_unstable();
        }
    }

    /// Notes what a merge changed: the pairs that its new token makes with its neighbours, of those that `keep` names, and
    /// the pairs that they made before. `touched`: the keys of the pairs that count more now.
    pub fn change(
        &mut self,
        joint: &Joint,
        parts: &[Found],
        keep: impl Fn(u32, u32) -> bool,
        touched: &mut Vec<u64>,
    ) -> Result<()> {
        touched.clear();
        let mut before = std::mem::take(&mut self.before);
        let mut after = std::mem::take(&mut self.after);
        before.gather(parts, |found| &found.before);
        after.gather(parts, |found| &found.after);
        let chunk = self.chunks.len() as u32;
        let mut positions = Vec::new();
        before.place(&mut positions, |id| keep(id, joint.token));
        after.place(&mut positions, |id| keep(joint.token, id));
        before.fill(&mut positions, parts, |found| &found.before);
        after.fill(&mut positions, parts, |found| &found.after);
        self.add_chunk(positions);
        let made = before.kept().map(|group| (key_of(group.id, joint.token), group));
        for (key, group) in made.chain(after.kept().map(|group| (key_of(joint.token, group.id), group))) {
            self.add(key, group.count, Span { chunk, start: group.end - group.n_positions, end: group.end });
            touched.push(key);
        }
        let broken = before.all.iter().map(|group| (key_of(group.id, joint.left), group.count));
        for (key, count) in broken.chain(after.all.iter().map(|group| (key_of(joint.right, group.id), group.count))) {
            self.subtract(key, count)?;
        }
        self.free_if_unused(chunk);
        (self.before, self.after) = (before, after);
        Ok(())
    }

    fn add(&mut self, key: u64, count: u64, span: Span) {
        self.chunks[span.chunk as usize].n_spans += 1;
        match self.map.entry(key) {
            Entry::Vacant(place) => {
                place.insert(Pair { count, span, next: NONE });
            }
            Entry::Occupied(mut place) => {
                let pair = place.get_mut();
                pair.count += count;
                self.more.push((span, pair.next));
                pair.next = self.more.len() as u32 - 1;
            }
        }
    }

    /// A pair that is not there is the merged one, or one that is not looked at.
    fn subtract(&mut self, key: u64, count: u64) -> Result<()> {
        let Entry::Occupied(mut place) = self.map.entry(key) else { return Ok(()) };
        let pair = place.get_mut();
        pair.count = pair.count.checked_sub(count).ok_or_else(|| {
            CoreError::Internal("a pair was removed more often than it was counted; please report it.".into())
        })?;
        if pair.count == 0 {
            let (mut span, mut next) = (pair.span, pair.next);
            place.remove();
            loop {
                self.release(span.chunk);
                if next == NONE {
                    break;
                }
                (span, next) = self.more[next as usize];
            }
        }
        Ok(())
    }

    fn add_chunk(&mut self, positions: Vec<u32>) -> u32 {
        self.n_held += positions.len();
        self.chunks.push(Chunk { positions, n_spans: 0 });
        self.chunks.len() as u32 - 1
    }

    fn release(&mut self, chunk: u32) {
        self.chunks[chunk as usize].n_spans -= 1;
        self.free_if_unused(chunk);
    }

    fn free_if_unused(&mut self, chunk: u32) {
        let chunk = &mut self.chunks[chunk as usize];
        if chunk.n_spans == 0 {
            self.n_held -= chunk.positions.len();
            chunk.positions = Vec::new();
        }
    }

    /// Copies the positions that are still right together, when most are not. `n_tokens`: tokens in the text now, of which
    /// each begins at most one pair.
    pub fn compact(&mut self, words: &Words, n_tokens: usize, cells_of: impl Fn(u32) -> usize) {
        if self.n_held < 2 * n_tokens + STALE_MIN {
            return;
        }
        let mut positions: Vec<u32> = Vec::with_capacity(n_tokens);
        for (&key, pair) in &mut self.map {
            let (left, right) = ids_of(key);
            let start = positions.len();
            let (mut span, mut next) = (pair.span, pair.next);
            loop {
                let held = &self.chunks[span.chunk as usize].positions[span.start as usize..span.end as usize];
                positions.extend(held.iter().filter(|&&position| words.has(position, left, right, cells_of(left))));
                if next == NONE {
                    break;
                }
                (span, next) = self.more[next as usize];
            }
            if pair.next != NONE {
                positions[start..].sort_unstable();
            }
            pair.span = Span { chunk: 0, start: start as u32, end: positions.len() as u32 };
            pair.next = NONE;
        }
        positions.shrink_to_fit();
        self.more.clear();
        self.n_held = positions.len();
        self.chunks.clear();
        self.chunks.push(Chunk { positions, n_spans: self.map.len() as u32 });
    }
}

/// What a merge made with each neighbouring token on one side.
#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    /// By token: its place in `all` and 1 more, or 0.
    places: Vec<u32>,
}

struct Group {
    id: u32,
    count: u64,
    n_positions: u32,
    /// Where its positions end; NONE when they are not kept.
    end: u32,
}

impl Groups {
    fn gather(&mut self, parts: &[Found], side: impl Fn(&Found) -> &[Neighbour]) {
        for group in &self.all {
            self.places[group.id as usize] = 0;
        }
        self.all.clear();
        for neighbour in parts.iter().flat_map(&side) {
            let id = neighbour.id as usize;
            if id >= self.places.len() {
                self.places.resize((id + 1).next_power_of_two(), 0);
            }
            if self.places[id] == 0 {
                self.all.push(Group { id: neighbour.id, count: 0, n_positions: 0, end: NONE });
                self.places[id] = self.all.len() as u32;
            }
            let group = &mut self.all[self.places[id] as usize - 1];
            group.count += neighbour.count;
            group.n_positions += 1;
        }
    }

    /// Makes room for the positions of the groups that are kept.
    fn place(&mut self, positions: &mut Vec<u32>, keep: impl Fn(u32) -> bool) {
        for group in self.all.iter_mut().filter(|group| keep(group.id)) {
            group.end = positions.len() as u32;
            positions.resize(positions.len() + group.n_positions as usize, 0);
        }
    }

    fn fill(&mut self, positions: &mut [u32], parts: &[Found], side: impl Fn(&Found) -> &[Neighbour]) {
        for neighbour in parts.iter().flat_map(&side) {
            let group = &mut self.all[self.places[neighbour.id as usize] as usize - 1];
            if group.end != NONE {
                positions[group.end as usize] = neighbour.position;
                group.end += 1;
            }
        }
    }

    fn kept(&self) -> impl Iterator<Item = &Group> {
        self.all.iter().filter(|group| group.end != NONE)
    }
}
