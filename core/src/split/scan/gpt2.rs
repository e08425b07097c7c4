//! The scanner for gpt2, and for starcoder, which first cuts out each number.
//!
//! Pieces are runs of letters, of numbers, and of characters that are neither, each with a preceding blank. A run of white space
//! leaves its last character to the next piece. A contraction is a piece of its own, from its apostrophe on.

use super::block::Block;
use super::window::{Classes, Extent, Rule, contraction, is_blank, is_quote};
use crate::split::unicode::{LETTER, NUMBER, SPACE, Table};

/// ALONE: each number is a piece, and the text before a number is split as if the whole text ended there.
pub struct Gpt2<const ALONE: bool>;

impl<const ALONE: bool> Rule for Gpt2<ALONE> {
    const TABLE: &'static Table = Classes::TABLE;
    type Classes = Classes;

    #[inline(always)]
    fn of_ascii(block: &impl Block) -> Classes {
        Classes::of_ascii(block)
    }

    #[inline(always)]
    fn of_flags(block: &impl Block) -> Classes {
        Classes::of_flags(block)
    }

    #[inline(always)]
    fn starts(classes: &Classes, extent: Extent, bytes: &[u8], place: impl Fn(u32) -> usize) -> (u64, u32) {
        let Classes { letter, number, space, blank, quote, .. } = *classes;
        let other = extent.valid() & !(letter | number | space);
        let first = |run: u64| run & !(run << 1);
        let joined = if ALONE { letter | other } else { letter | other | number };
        let words = (first(letter) | first(other) | if ALONE { 0 } else { first(number) }) & !(blank << 1);
        let mut starts = words | first(space) | space & joined >> 1 | if ALONE { number } else { 0 };
        let mut quotes = quote & words & letter >> 1;
        while quotes != 0 {
            let i = quotes.trailing_zeros();
            let (n, _) = contraction(bytes, place(i), false);
            if n > 0 {
                starts = starts & !(2 << i) | 1_u64.checked_shl(i + n).unwrap_or(0);
            }
            quotes &= quotes - 1;
        }
        (starts, extent.known())
    }

    fn end(bytes: &[u8], at: usize) -> usize {
        let table = Self::TABLE;
        let (flags, length) = table.at(bytes, at);
        if is_quote(flags) {
            let (_, length) = contraction(bytes, at, false);
            if length > 0 {
                return at + length;
            }
        }
        if ALONE && flags & NUMBER != 0 {
            return at + length;
        }
        let (next, _) = table.at(bytes, at + length);
        let has_next = at + length < bytes.len();
        let joins = is_blank(flags) && has_next && next & SPACE == 0 && !(ALONE && next & NUMBER != 0);
        match if joins { next } else { flags } {
            word if word & LETTER != 0 => table.run(bytes, at + length, LETTER),
            word if word & NUMBER != 0 => table.run(bytes, at + length, NUMBER),
            word if word & SPACE == 0 => table.run_without(bytes, at + length, LETTER | NUMBER | SPACE),
            _ => {
                let mut last = at;
                let mut end = at + length;
                while let (next @ 1.., length) = table.at(bytes, end)
                    && next & SPACE != 0
                {
                    last = end;
                    end += length;
                }
                let (next, length) = table.at(bytes, end);
                let whole = length == 0 || last == at || ALONE && next & NUMBER != 0;
                if whole { end } else { last }
            }
        }
    }
}
