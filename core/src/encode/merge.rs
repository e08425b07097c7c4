//! Merges one pre-token: a short one by scanning a small array, a longer one in `long_pretoken`.
//!
//! Invariant: the result is that of always merging the pair with the lowest rank, and of equal ranks the leftmost. Cost: O(n²)
//! very cheap steps for up to SCANNED_MAX bytes, O(n log n) for more. Nothing is allocated once the scratch space has grown.

use crate::encode::long_pretoken::Long;
use crate::encode::merge_table::MergeTable;
use crate::memory::out_buffer::Tail;
use crate::pair::{NO_PAIR, NONE};
use crate::parallel::interrupt::{Result, Stop};

/// Up to this many bytes, scanning is faster than a queue.
pub(crate) const SCANNED_MAX: usize = 48;
/// The number of symbols that are moved at once.
const BLOCK: usize = 8;
/// Room for symbols that are scanned.
pub(crate) type Symbols = [u32; SCANNED_MAX + BLOCK];
/// No symbols yet.
pub(crate) const NO_SYMBOLS: Symbols = [NONE; SCANNED_MAX + BLOCK];
/// Scratch space, reused for every pre-token.
#[derive(Default)]
pub struct Scratch(Long);

impl Scratch {
    /// Merges the bytes of a pre-token as far as the merge table allows, and appends the remaining symbols to `out`.
    ///
    /// Every byte must have an id, and there must be fewer than 2^32 - 1 bytes. Returns Interrupted when `stop` says so.
    pub fn merge(&mut self, table: &MergeTable, piece: &[u8], stop: &Stop, out: &mut Tail<u32>) -> Result<()> {
        if piece.len() <= SCANNED_MAX {
            scan(table, piece, out);
            return Ok(());
        }
        self.0.merge(table, piece, stop, out)
    }
}

/// Merges a pre-token of up to SCANNED_MAX bytes by searching the lowest rank after each merge.
fn scan(table: &MergeTable, piece: &[u8], out: &mut Tail<u32>) {
    let mut ids = NO_SYMBOLS;
    let (mut n, mut at) = (0, 0);
    while at < piece.len() {
        let (id, n_bytes) = table.symbol(piece, at);
        ids[n] = id;
        at += n_bytes;
        n += 1;
    }
    let n = merge_symbols(table, &mut ids, n);
    out.extend(&ids[..n]);
}

/// Merges the first `n` symbols, up to SCANNED_MAX, and returns how many are left.
#[inline(always)]
pub(crate) fn merge_symbols(table: &MergeTable, ids: &mut Symbols, mut n: usize) -> usize {
    let mut pairs = [NO_PAIR; SCANNED_MAX + BLOCK];
    for i in 1..n {
        pairs[i - 1] = table.get(ids[i - 1], ids[i]);
    }
    while n > 1 {
        let (mut at, mut best) = (0, NO_PAIR);
        for (i, &pair) in pairs[..n - 1].iter().enumerate() {
            if pair.rank < best.rank {
                (at, best) = (i, pair);
            }
        }
        if best == NO_PAIR {
            break;
        }
        ids[at] = best.token;
        close(ids, at + 1, n);
        n -= 1;
        if at + 1 < n {
            close(&mut pairs, at + 1, n);
            pairs[at] = table.get(best.token, ids[at + 1]);
        }
        if at > 0 {
            pairs[at - 1] = table.get(ids[at - 1], best.token);
        }
    }
    n
}

/// Removes the value at `at` from the first `n`, in blocks, because a call to memmove takes longer. There must be room for a
/// block after them.
#[inline(always)]
fn close<T: Copy>(values: &mut [T], at: usize, n: usize) {
    for from in (at..n).step_by(BLOCK) {
        if let Some(block) = values[from + 1..].first_chunk::<BLOCK>().copied() {
            values[from..from + BLOCK].copy_from_slice(&block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustc_hash::FxHashMap;

    /// The ids of bytes are the bytes themselves.
    fn table(merges: &[(u32, u32, u32, u32)]) -> MergeTable {
        let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).chain((0..100).map(|_| Vec::new())).collect();
        for &(left, right, _, token) in merges {
            tokens[token as usize] = [&tokens[left as usize][..], &tokens[right as usize]].concat();
        }
        let byte_ids = std::array::from_fn(|byte| Some(byte as u32));
        MergeTable::new(&byte_ids, |id| &tokens[id as usize], merges.iter().copied()).unwrap()
    }

    /// Merges naively, one merge at a time: the lowest rank first, and of equal ranks the leftmost pair.
    fn naive(table: &MergeTable, piece: &[u8]) -> Vec<u32> {
        let mut ids: Vec<u32> = piece.iter().map(|&byte| u32::from(byte)).collect();
        let first = |ids: &[u32]| {
            let pairs = ids.windows(2).enumerate().map(|(i, two)| (table.get(two[0], two[1]), i));
            pairs.filter(|(pair, _)| *pair != NO_PAIR).min_by_key(|(pair, i)| (pair.rank, *i))
        };
        while let Some((pair, i)) = first(&ids) {
            ids.splice(i..i + 2, [pair.token]);
        }
        ids
    }

    fn merged(merges: &[(u32, u32, u32, u32)], piece: &[u8]) -> Vec<u32> {
        let table = table(merges);
        let expected = naive(&table, piece);
        let mut out = Tail::default();
        Scratch::default().merge(&table, piece, &Stop::default(), &mut out).unwrap();
        assert_eq!(out.take(), expected, "{merges:?} {piece:?}");
        for part in [1, 2, 3, 7, 16, piece.len()] {
            Long::default().merge_parts(&table, piece, part, &Stop::default(), &mut out).unwrap();
            assert_eq!(out.take(), expected, "parts of {part} bytes");
        }
        expected
    }

    #[test]
    fn the_lowest_rank_is_merged_first() {
        assert_eq!(merged(&[(1, 2, 1, 300), (2, 3, 0, 301)], &[1, 2, 3]), [1, 301]);
    }

    #[test]
    fn of_equal_ranks_the_leftmost_is_merged() {
        assert_eq!(merged(&[(1, 1, 0, 300)], &[1, 1, 1]), [300, 1]);
        assert_eq!(merged(&[(1, 1, 0, 300), (300, 300, 1, 301)], &[1; 5]), [301, 1]);
        assert_eq!(merged(&[(1, 2, 0, 301), (2, 3, 0, 300)], &[1, 2, 3]), [301, 3]);
    }

    #[test]
    fn a_pair_that_is_gone_is_skipped() {
        assert_eq!(merged(&[(1, 2, 0, 300), (2, 1, 1, 301), (300, 300, 2, 302)], &[1, 2, 1, 2]), [302]);
    }

    #[test]
    fn one_symbol_stays_as_it_is() {
        assert_eq!(merged(&[(1, 1, 0, 300)], &[1]), [1]);
    }

    #[test]
    fn the_last_pretoken_that_is_scanned_merges_like_the_first_that_is_not() {
        let merges = [(1, 2, 9, 300), (300, 1, 1, 301), (2, 300, 0, 302), (2, 2, 2, 303)];
        for n in SCANNED_MAX - 1..=SCANNED_MAX {
            let piece: Vec<u8> = (0..n).map(|i| 1 + ((i * i / 3) % 2) as u8).collect();
            merged(&merges, &piece);
        }
    }

    #[test]
    fn a_character_is_whole_from_the_start_only_if_nothing_comes_before_its_merges() {
        let character: &[u8] = b"\xe4\xb8\xad";
        let [a, b, c] = [0xe4, 0xb8, 0xad];
        let is_whole = |more: &[(u32, u32, u32, u32)], before: &[u8], behind: &[u8]| {
            let merges: Vec<_> = [(a, b, 5, 300), (300, c, 7, 301)].iter().chain(more).copied().collect();
            let piece = [before, character, behind].concat();
            merged(&merges, &piece);
            table(&merges).symbol(&piece, before.len()) == (301, 3)
        };
        assert!(is_whole(&[], b"", b"") && is_whole(&[], b"x", b"x"));
        // The first byte and a byte before it: their merge must have a higher rank than the first byte's own merge.
        assert!(is_whole(&[(0x78, a, 6, 310)], b"x", b"") && is_whole(&[(0x78, a, 5, 310)], b"y", b""));
        assert!(!is_whole(&[(0x78, a, 5, 310)], b"x", b""));
        // The last byte and a byte after it: their merge must not have a lower rank than the last byte's own merge.
        assert!(is_whole(&[(c, 0x78, 7, 310)], b"", b"x") && is_whole(&[(c, 0x78, 6, 310)], b"", b"y"));
        assert!(!is_whole(&[(c, 0x78, 6, 310)], b"", b"x"));
        // The first two bytes and an ASCII byte before them, or the end of a character.
        assert!(is_whole(&[(0x78, 300, 8, 310)], b"x", b"") && is_whole(&[(0x78, 300, 7, 310)], b"\xad", b""));
        assert!(!is_whole(&[(0x78, 300, 7, 310)], b"x", b"") && !is_whole(&[(c, 300, 6, 310)], b"\xad", b""));
        // Merges of the whole character with a lower rank than one of its own merges.
        assert!(!is_whole(&[(301, 0x78, 6, 310), (0x78, 0x79, 3, 311)], b"", b"xy"));
        let late = [(a, b, 5, 300), (300, c, 2, 301), (301, 0x78, 3, 302), (0x78, 0x79, 4, 303)];
        assert_eq!(merged(&late, b"\xe4\xb8\xadxy"), [301, 303]);
        // The last two bytes merge first, and then with a byte after them.
        let last = [(b, c, 5, 300), (a, 300, 7, 301), (300, 0x78, 6, 302), (0x79, a, 7, 303), (a, b, 6, 304)];
        assert_eq!(merged(&last, b"\xe4\xb8\xadx"), [a, 302]);
        assert_eq!(merged(&last, b"y\xe4\xb8\xad"), [303, 300]);
        assert_eq!(merged(&last, b"x\xe4\xb8\xady"), [0x78, 301, 0x79]);
        // Of equal ranks, the first two bytes merge.
        assert_eq!(merged(&[(a, b, 5, 300), (b, c, 5, 301), (a, 301, 6, 302)], character), [300, c]);
    }

    #[test]
    fn parts_that_are_swept_come_to_the_same_as_the_whole() {
        let mut state = 9_u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) % n
        };
        for round in 0..12 {
            let mut known: Vec<(Vec<u8>, u32)> = (0..4).map(|id| (vec![id as u8], id)).collect();
            let mut merges: Vec<(u32, u32, u32, u32)> = Vec::new();
            for new in 270..350 {
                let [(first, left), (second, right)] = [0; 2].map(|_| &known[below(known.len() as u64) as usize]);
                let bytes = [&first[..], second].concat();
                let token = known.iter().find(|one| one.0 == bytes).map_or(new, |one| one.1);
                if bytes.len() < 9 && merges.iter().all(|merge| (merge.0, merge.1) != (*left, *right)) {
                    let rank = if round % 2 == 0 { new } else { below(40) as u32 };
                    merges.push((*left, *right, rank, token));
                    known.push((bytes, token));
                }
            }
            let table = table(&merges);
            let piece: Vec<u8> = (0..30_000).map(|_| below(2 + round % 3) as u8).collect();
            let mut out = Tail::default();
            let [whole, parts, short] = [30_000, 4_096, 1_000].map(|part_bytes| {
                Long::default().merge_parts(&table, &piece, part_bytes, &Stop::default(), &mut out).unwrap();
                out.take()
            });
            assert!(whole == parts && whole == short, "{merges:?}");
        }
    }

    /// Covers tokens that take part in merges of lower ranks than their own, equal ranks, and bytes that are not UTF-8.
    #[test]
    fn bytes_that_are_merged_beforehand_change_nothing() {
        let mut state = 1_u32;
        let mut below = |n: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as usize % n
        };
        let (mut n_twos, mut n_threes) = (0, 0);
        for round in 0..6_000 {
            let texts: &[&[u8]] = match round % 3 {
                0 => &[&[1], &[2], &[3]],
                1 => &[b"\xe4\xb8\xad", b"\xe4\xb8\xb8", b"a"],
                _ => &[b"\xe4\xb8\xad", b"\xe5\xad\xad", b"\xc3\xa4", b"\xe4", b"\xb8", b"b"],
            };
            let mut known: Vec<(Vec<u8>, u32)> = texts.concat().iter().map(|&byte| (vec![byte], byte.into())).collect();
            let mut merges: Vec<(u32, u32, u32, u32)> = Vec::new();
            for new in 300..310 + below(10) as u32 {
                // The merges of a character come first: of its first two bytes, or of its last two.
                let mut two = [0; 2].map(|_| below(known.len()));
                match (round % 3, new) {
                    (0, _) => (),
                    (_, 300) => two = [[0, 1], [1, 2]][round / 3 % 2],
                    (_, 301) => two = [[known.len() - 1, 2], [0, known.len() - 1]][round / 3 % 2],
                    _ => (),
                }
                let [(first, left), (second, right)] = two.map(|i| &known[i]);
                let bytes = [&first[..], second].concat();
                let token = known.iter().find(|one| one.0 == bytes).map_or(new, |one| one.1);
                if merges.iter().all(|merge| (merge.0, merge.1) != (*left, *right)) {
                    merges.push((*left, *right, below(12) as u32, token));
                    known.push((bytes, token));
                }
            }
            let table = table(&merges);
            for n in [1, 2, 4, 10, 30] {
                let piece: Vec<u8> = (0..n).flat_map(|_| texts[below(texts.len())]).copied().collect();
                let n_bytes: Vec<usize> = (0..piece.len()).map(|at| table.symbol(&piece, at).1).collect();
                n_twos += n_bytes.iter().filter(|&&n| n == 2).count();
                n_threes += n_bytes.iter().filter(|&&n| n == 3).count();
                merged(&merges, &piece);
            }
        }
        assert!(n_twos > 10_000 && n_threes > 1_000, "{n_twos} twos, {n_threes} threes");
    }

    #[test]
    fn the_pairs_that_are_found_are_those_that_were_given() {
        let merges: Vec<_> = (0..100_000).map(|i| (i % 5_003, i % 60_013, i, i)).collect();
        let known: FxHashMap<_, _> = merges.iter().map(|&(left, right, _, token)| ((left, right), token)).collect();
        let table = MergeTable::new(&[None; 256], |_| &[], merges.iter().copied()).unwrap();
        for &(left, right, ..) in &merges {
            for pair in [(left, right), (right, left), (left + 1, right)] {
                assert_eq!(table.get(pair.0, pair.1).token, known.get(&pair).copied().unwrap_or(NONE), "{pair:?}");
            }
        }
    }

    #[test]
    fn a_pair_that_is_there_before_is_told() {
        let merges = [(1, 2, 0, 300), (2, 2, 1, 301), (1, 2, 2, 302)];
        assert_eq!(MergeTable::new(&[None; 256], |_| &[], merges.into_iter()).err(), Some(2));
    }

    #[test]
    fn a_stop_is_noticed_inside_one_pretoken() {
        let table = table(&[(1, 1, 0, 300)]);
        let stop = Stop::default();
        stop.request();
        let found = Scratch::default().merge(&table, &[1; 1 << 16], &stop, &mut Tail::default());
        assert_eq!(found, Err(crate::parallel::interrupt::CoreError::Interrupted));
    }
}
