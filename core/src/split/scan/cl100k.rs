//! The scanner for cl100k, llama3 and qwen2. Its rules for white space, numbers and other characters also serve o200k.
//!
//! A run of letters takes one preceding character that is not a letter, number or line end. Numbers come in groups of up to three
//! (or one). Other characters take a preceding blank and following line ends. White space is cut after its last line end, and the
//! rest of it leaves its last character to the next piece.

use super::block::Block;
use super::window::{Classes, Extent, Rule, contraction, is_blank, is_line, is_quote, is_slash};
use crate::split::unicode::{LETTER, MARK, NUMBER, SPACE, Table};

/// NUMBERS: the most digits in a piece. WHOLE_END: white space at the end of the text is one piece, including line ends.
pub struct Cl100k<const NUMBERS: u32, const WHOLE_END: bool>;

/// What a window shows about everything except contractions and the case of letters.
pub struct Common {
    pub starts: u64,
    pub sure: u32,
    /// Line ends that belong to the characters before them.
    pub taken: u64,
    /// The starts of runs of other characters that take no preceding blank.
    pub other_starts: u64,
}

/// `letter`: the characters of which the pattern's letter runs consist.
#[inline(always)]
pub fn common<const NUMBERS: u32, const WHOLE_END: bool>(classes: &Classes, letter: u64, extent: Extent) -> Common {
    let Classes { number, space, blank, line, .. } = *classes;
    let first = |run: u64| run & !(run << 1);
    let other = extent.valid() & !(letter | number | space);
    // Addition carries through a run of ones, from its first bit to the bit after its last.
    let taken = line & !line.wrapping_add(line & other << 1);
    let space = space & !taken;
    let (line, flat) = (line & space, space & !line);
    let other_starts = first(other) & !(blank << 1);
    let single = other_starts & !(other >> 1);
    let letter_starts = first(letter) & !((flat | single) << 1);
    let mut starts = letter_starts | other_starts | first(space) | flat & (letter | number | other) >> 1;
    starts |= number_starts::<NUMBERS>(number);
    // White space after the last line end of its run starts a piece. White space between line ends does not, which is rare.
    let rests = flat & line << 1;
    starts |= rests;
    let mut inner = flat.wrapping_add(rests) & !flat & line;
    while inner != 0 {
        let i = inner.trailing_zeros();
        let before = !flat & !(u64::MAX << i);
        starts &= !1_u64.checked_shl(64 - before.leading_zeros()).unwrap_or(0);
        inner &= inner - 1;
    }
    let mut sure = extent.known();
    if let Some(start) = extent.open_run(classes.space) {
        sure = sure.min(start);
    }
    if WHOLE_END && !extent.more {
        let start = 64 - (!space & extent.valid()).leading_zeros();
        if start < extent.n {
            starts &= !(u64::MAX << start << 1);
        }
    }
    Common { starts, sure, taken, other_starts }
}

#[inline(always)]
fn number_starts<const NUMBERS: u32>(number: u64) -> u64 {
    if NUMBERS == 1 {
        return number;
    }
    let mut starts = number & !(number << 1);
    let mut next = starts;
    let full = number & number << 1 & number << 2 & number << 3;
    while next & full >> 3 != 0 {
        next = next << 3 & full;
        starts |= next;
    }
    starts
}

impl<const NUMBERS: u32, const WHOLE_END: bool> Rule for Cl100k<NUMBERS, WHOLE_END> {
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
        let Common { mut starts, sure, other_starts, .. } =
            common::<NUMBERS, WHOLE_END>(classes, classes.letter, extent);
        let mut quotes = classes.quote & other_starts & classes.letter >> 1;
        while quotes != 0 {
            let i = quotes.trailing_zeros();
            let (n, _) = contraction(bytes, place(i), true);
            if n > 0 {
                starts |= 1_u64.checked_shl(i + n).unwrap_or(0);
            }
            quotes &= quotes - 1;
        }
        (starts, sure)
    }

    fn end(bytes: &[u8], at: usize) -> usize {
        let table = Self::TABLE;
        let (flags, length) = table.at(bytes, at);
        if is_quote(flags) {
            let (_, length) = contraction(bytes, at, true);
            if length > 0 {
                return at + length;
            }
        }
        let (next, _) = table.at(bytes, at + length);
        let takes_letters = flags & NUMBER == 0 && !is_line(flags) && next & LETTER != 0;
        if flags & LETTER != 0 || takes_letters {
            return table.run(bytes, at + length, LETTER);
        }
        end_without_letters::<NUMBERS, WHOLE_END>(bytes, at, LETTER, false)
    }
}

/// The end of a piece that is not a word. `slashes`: slashes may follow other characters, as line ends may.
pub fn end_without_letters<const NUMBERS: u32, const WHOLE_END: bool>(
    bytes: &[u8],
    at: usize,
    letter: u8,
    slashes: bool,
) -> usize {
    let table = Classes::TABLE;
    let (flags, length) = table.at(bytes, at);
    let (next, _) = table.at(bytes, at + length);
    if flags & NUMBER != 0 {
        let mut end = at;
        for _ in 0..NUMBERS {
            let (flags, length) = table.at(bytes, end);
            if flags & NUMBER == 0 {
                break;
            }
            end += length;
        }
        return end;
    }
    let known = letter & !MARK | NUMBER | SPACE;
    if flags & SPACE == 0 || is_blank(flags) && at + length < bytes.len() && next & known == 0 {
        let mut end = table.run_without(bytes, at + length, known);
        while let (flags, length @ 1..) = table.at(bytes, end)
            && (is_line(flags) || slashes && is_slash(flags))
        {
            end += length;
        }
        return end;
    }
    let (mut last, mut end, mut behind_line) = (at, at, at);
    while let (flags, length @ 1..) = table.at(bytes, end)
        && flags & SPACE != 0
    {
        last = end;
        end += length;
        if is_line(flags) {
            behind_line = end;
        }
    }
    let at_end = end == bytes.len();
    match behind_line {
        _ if WHOLE_END && at_end => end,
        behind if behind > at => behind,
        _ if at_end || last == at => end,
        _ => last,
    }
}
