//! o200k: words are cut where case changes from lower to upper, and keep their contraction.
//!
//! A word is upper-case letters, then lower-case ones; letters without case and marks count as either, and a mark may also
//! stand before a word or among other characters. Those rare meetings (a mark that follows no letter, an upper-case letter
//! behind one without case, a slash behind a line end that was taken) end what is sure of a window.

use super::block::Block;
use super::cl100k::{Common, common, end_without_letters};
use super::window::{Classes, Extent, Rule, contraction, is_line, is_quote};
use crate::split::unicode::{CASELESS, LETTER, LOWER, MARK, NUMBER, Table, UPPER};

pub struct O200k;

impl Rule for O200k {
    const TABLE: &'static Table = Classes::TABLE;
    type Classes = Classes;

    #[inline(always)]
    fn of_ascii(block: &impl Block) -> Classes {
        // What `letter` is, spelled out: here its parts are needed too.
        let mut classes = Classes::of_ascii(block);
        classes.letter = classes.upper | classes.lower;
        classes
    }

    #[inline(always)]
    fn of_flags(block: &impl Block) -> Classes {
        Classes::of_flags(block)
    }

    #[inline(always)]
    fn starts(classes: &Classes, extent: Extent, bytes: &[u8], place: impl Fn(u32) -> usize) -> (u64, u32) {
        let letter = classes.letter | classes.mark;
        let either = classes.caseless | classes.mark;
        let Common { mut starts, mut sure, taken, .. } = common::<3, false>(classes, letter, extent);
        starts |= classes.upper & classes.lower << 1;
        let unsure = classes.mark & !(letter << 1) | classes.upper & either << 1 | classes.slash & taken << 1;
        if unsure != 0 {
            sure = sure.min(unsure.trailing_zeros().saturating_sub(1));
        }
        let mut quotes = classes.quote & letter << 1 & letter >> 1;
        let mut behind = 0;
        while quotes != 0 {
            let i = quotes.trailing_zeros();
            let (n, _) = contraction(bytes, place(i), true);
            // An apostrophe right behind a contraction begins a word.
            if n > 0 && (behind == 0 || behind != i) {
                behind = i + n;
                let next = 1_u64.checked_shl(behind).unwrap_or(0);
                // U+017F may be the s, and upper case may follow within a contraction: no piece begins in it.
                starts = starts & !(u64::MAX << i & !(u64::MAX.checked_shl(behind).unwrap_or(0))) | next;
                if next & classes.mark != 0 {
                    sure = sure.min(behind);
                }
            }
            quotes &= quotes - 1;
        }
        (starts, sure)
    }

    fn end(bytes: &[u8], at: usize) -> usize {
        let table = Self::TABLE;
        let (flags, length) = table.at(bytes, at);
        let may_lead = flags & (LETTER | NUMBER) == 0 && !is_line(flags);
        let lead = if may_lead { Some(at + length) } else { None };
        let word = lead.and_then(|from| cased(bytes, from)).or_else(|| cased(bytes, at));
        let word = word.or_else(|| lead.and_then(|from| uncased(bytes, from))).or_else(|| uncased(bytes, at));
        let Some(end) = word else { return end_without_letters::<3, false>(bytes, at, LETTER, true) };
        if is_quote(table.at(bytes, end).0) { end + contraction(bytes, end, true).1 } else { end }
    }
}

/// Letters that end in at least one that is lower case or without case.
fn cased(bytes: &[u8], from: usize) -> Option<usize> {
    let table = O200k::TABLE;
    let mut end = from;
    let mut behind_either = None;
    while let (flags, length @ 1..) = table.at(bytes, end)
        && flags & (UPPER | CASELESS | MARK) != 0
    {
        end += length;
        if flags & (CASELESS | MARK) != 0 {
            behind_either = Some(end);
        }
    }
    let lower = table.run(bytes, end, LOWER | CASELESS | MARK);
    if lower > end { Some(lower) } else { behind_either }
}

/// Upper-case letters alone, when `cased` found nothing.
fn uncased(bytes: &[u8], from: usize) -> Option<usize> {
    Some(O200k::TABLE.run(bytes, from, UPPER)).filter(|end| *end > from)
}
