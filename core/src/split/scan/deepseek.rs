//! The scanner for deepseek: its six steps reduce to comparing neighbouring characters, and to how a run of white space ends.
//!
//! A piece begins and ends with each run of cased letters or of punctuation (ASCII letters are both). Such a run takes one
//! preceding white-space character. White space that then ends a piece is cut off. Runs of ideographs are cut out of the rest; an
//! ideograph may also be a space (U+3000, which is punctuation too) or a letter. Line ends and numbers are pieces of their own.

use super::block::Block;
use super::window::{Extent, Rule};
use crate::split::unicode::{DEEPSEEK, Table};

/// Flags of the table, as build.rs sets them. SPACE excludes line ends.
const LETTER: u8 = 1;
const PUNCTUATION: u8 = 2;
const IDEOGRAPH: u8 = 4;
const NUMBER: u8 = 8;
const SPACE: u8 = 16;
const LINE: u8 = 32;

pub struct Deepseek;

pub struct Classes {
    letter: u64,
    punctuation: u64,
    ideograph: u64,
    number: u64,
    space: u64,
    line: u64,
}

impl Rule for Deepseek {
    const TABLE: &'static Table = &DEEPSEEK;
    type Classes = Classes;

    #[inline(always)]
    fn of_ascii(block: &impl Block) -> Classes {
        let number = block.between(b'0', b'9');
        let line = block.equal(b'\n') | block.equal(b'\r');
        Classes {
            letter: block.letters(),
            punctuation: block.between(b'!', b'~') & !number,
            ideograph: 0,
            number,
            space: (block.equal(b' ') | block.between(9, 13)) & !line,
            line,
        }
    }

    #[inline(always)]
    fn of_flags(block: &impl Block) -> Classes {
        Classes {
            letter: block.bit(0),
            punctuation: block.bit(1),
            ideograph: block.bit(2),
            number: block.bit(3),
            space: block.bit(4),
            line: block.bit(5),
        }
    }

    #[inline(always)]
    fn starts(classes: &Classes, extent: Extent, _: &[u8], _: impl Fn(u32) -> usize) -> (u64, u32) {
        let Classes { letter, punctuation, ideograph, number, space, line } = *classes;
        let first = |run: u64| run & !(run << 1);
        let behind = |run: u64| !run & run << 1;
        let taking = |starts: u64, before: u64| starts & !(before << 1) | starts >> 1 & before;
        // The cuts of the first three steps. What the second step has cut off can no longer take a space.
        let letters = taking(first(letter), space) | behind(letter);
        let marks = taking(first(punctuation) & !letters, space & !punctuation) | behind(punctuation);
        let outer = line | behind(line) | letters | marks;
        let mut starts = outer | first(ideograph) | behind(ideograph) | number | behind(number);
        let mut sure = extent.known();
        if let Some(start) = extent.open_run(space) {
            sure = sure.min(start.saturating_sub(1));
        }
        // White space that is not cut off yet is cut off if the piece ends inside it or together with it.
        let mut spaces = first(space) & !starts;
        let ends = outer | !extent.valid();
        while spaces != 0 {
            let i = spaces.trailing_zeros();
            let above = u64::MAX << i << 1;
            let run_end = (!space & above).trailing_zeros();
            let cut = (ends & above).trailing_zeros();
            // In a full window without text after it, the end of the text is bit 64.
            if cut <= run_end {
                starts |= 1 << i;
            }
            spaces &= spaces - 1;
        }
        (starts, sure)
    }

    fn end(bytes: &[u8], at: usize) -> usize {
        let table = Self::TABLE;
        let (mut before, length) = table.at(bytes, at);
        let (mut last, mut end) = (at, at + length);
        loop {
            let (flags, length) = table.at(bytes, end);
            let is = |class: u8| flags & class != 0;
            let begins = |class: u8| is(class) && before & class == 0;
            let ends = |class: u8| !is(class) && before & class != 0;
            // A space that is also punctuation goes to letters first.
            let goes = is(SPACE) && is(PUNCTUATION) && table.at(bytes, end + length).0 & LETTER != 0;
            let takes = begins(LETTER) && before & SPACE != 0
                || begins(PUNCTUATION) && before & (SPACE | PUNCTUATION) == SPACE && !goes;
            if takes && last > at {
                return last;
            }
            if length == 0 || is(LINE | NUMBER) || before & (LINE | NUMBER) != 0 || ends(LETTER) || ends(PUNCTUATION) {
                return end;
            }
            if (begins(LETTER) || begins(PUNCTUATION)) && !takes {
                return end;
            }
            if begins(SPACE) && cuts_off(bytes, end) || begins(IDEOGRAPH) || ends(IDEOGRAPH) {
                return end;
            }
            (before, last, end) = (flags, end, end + length);
        }
    }
}

/// Whether the white space that begins at `at`, after another character, ends a piece (inside it or together with it).
fn cuts_off(bytes: &[u8], at: usize) -> bool {
    let (mut plain, mut punctuation) = (false, false);
    let mut end = at;
    loop {
        let (flags, length) = DEEPSEEK.at(bytes, end);
        if flags & SPACE == 0 {
            return match flags {
                _ if length == 0 => true,
                _ if flags & (LINE | LETTER) != 0 => true,
                _ if flags & PUNCTUATION != 0 => plain,
                _ => punctuation,
            };
        }
        plain |= flags & PUNCTUATION == 0;
        punctuation |= flags & PUNCTUATION != 0;
        end += length;
    }
}
