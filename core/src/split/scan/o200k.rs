//! The scanner for o200k: words are cut where lower case changes to upper case, and keep their contraction.
//!
//! A word is upper-case letters, then lower-case letters. Letters without case and marks count as either; a mark may also precede
//! a word or be among other characters. A window is not trusted beyond these rare combinations: a mark that follows no letter, an
//! upper-case letter after one without case, and a slash after a line end that belongs to the previous piece.

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
        // The same as `letter`, but from its parts, which are needed here anyway.
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
            // An apostrophe directly after a contraction begins a word.
            if n > 0 && (behind == 0 || behind != i) {
                behind = i + n;
                let next = 1_u64.checked_shl(behind).unwrap_or(0);
                // A contraction may contain U+017F as its s, or upper case; no piece begins inside it.
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

/// The end of letters of which the last is lower case or without case; None if there are none.
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

/// The end of upper-case letters. It is asked only if `cased` found nothing.
fn uncased(bytes: &[u8], from: usize) -> Option<usize> {
    Some(O200k::TABLE.run(bytes, from, UPPER)).filter(|end| *end > from)
}
