//! A window of text as words of bits, and the places in it where a rule says that pieces begin.
//!
//! Invariant: a window begins with a piece, so the text before it does not matter. In an ASCII window a bit is a byte. With other
//! characters a bit is a character, and `Places` says where each begins, so the same bit operations serve both.
//! Cost: one pass over the window.

use super::block::{Block, Bytes};
use crate::split::unicode::{BLANK_OR_SLASH, GENERAL, LINE_OR_QUOTE, Table};

/// The rules of one pattern.
pub trait Rule {
    const TABLE: &'static Table;
    type Classes;

    /// The classes of 64 ASCII characters.
    fn of_ascii(block: &impl Block) -> Self::Classes;

    /// The classes of 64 characters, from their flags in the table.
    fn of_flags(block: &impl Block) -> Self::Classes;

    /// The characters at which pieces begin, and the last character for which this is certain. `place`: the byte of a bit.
    fn starts(classes: &Self::Classes, extent: Extent, bytes: &[u8], place: impl Fn(u32) -> usize) -> (u64, u32);

    /// The end of the piece that begins at `at`, for at < bytes.len().
    fn end(bytes: &[u8], at: usize) -> usize;
}

/// The part of the text that a window shows.
#[derive(Clone, Copy)]
pub struct Extent {
    /// Characters, 1 to 64.
    pub n: u32,
    /// Whether text follows.
    pub more: bool,
}

impl Extent {
    /// The bits of the characters in the window.
    #[inline(always)]
    pub fn valid(self) -> u64 {
        u64::MAX >> (64 - self.n)
    }

    /// The last character whose next character is known.
    #[inline(always)]
    pub fn known(self) -> u32 {
        if self.more { self.n.saturating_sub(2) } else { self.n - 1 }
    }

    /// The first character of a run of `class` that continues beyond the window, if there is one.
    #[inline(always)]
    pub fn open_run(self, class: u64) -> Option<u32> {
        let others = !class & self.valid();
        let start = 64 - others.leading_zeros();
        (self.more && start < self.n).then_some(start)
    }
}

/// The result of a window.
pub struct Window {
    /// The characters at which pieces begin, without the first.
    pub starts: u64,
    /// Whether a bit stands for a character (see `Places`) instead of a byte.
    pub wide: bool,
    /// Whether the last of these pieces ends with the text.
    pub last: bool,
}

/// The offset in the window of each character.
pub struct Places(pub [u8; 64]);

impl Default for Places {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Places {
    #[inline(always)]
    pub fn of(&self, bit: u32) -> usize {
        usize::from(self.0[bit as usize & 63])
    }
}

/// Up to 64 characters of four bytes, plus the bytes read after the first byte of the last one. Zeros follow the text's end.
pub type Seen = [u8; SEEN_BYTES];
pub const SEEN_BYTES: usize = SEEN_BEGIN + 4;
const SEEN_BEGIN: usize = 64 * 4;

/// With this many ASCII characters before the first other character, they make a window of their own.
pub const ASCII_MIN: u32 = 24;

#[inline(always)]
pub fn window<R: Rule>(seen: &Seen, bytes: &[u8], at: usize, places: &mut Places) -> Window {
    let n_rest = bytes.len() - at;
    let (blocks, _) = seen.as_chunks::<64>();
    let (block, extent) = (Bytes::new(&blocks[0]), Extent { n: n_rest.min(64) as u32, more: n_rest > 64 });
    let first_wide = block.bit(7).trailing_zeros();
    if first_wide == 64 {
        return found::<R>(&R::of_ascii(&block), extent, bytes, |bit| at + bit as usize, false);
    }
    if first_wide >= ASCII_MIN {
        let extent = Extent { n: first_wide, more: true };
        let window = found::<R>(&R::of_ascii(&block), extent, bytes, |bit| at + bit as usize, false);
        if window.starts != 0 {
            return window;
        }
    }
    let (flags, extent) = read_wide(R::TABLE, seen, n_rest, places);
    found::<R>(&R::of_flags(&Bytes::new(&flags)), extent, bytes, |bit| at + places.of(bit), true)
}

#[inline(always)]
pub fn found<R: Rule>(
    classes: &R::Classes,
    extent: Extent,
    bytes: &[u8],
    place: impl Fn(u32) -> usize,
    wide: bool,
) -> Window {
    let (starts, sure) = R::starts(classes, extent, bytes, place);
    Window { starts: starts & !1 & u64::MAX >> (63 - sure), wide, last: !extent.more && sure == extent.n - 1 }
}

/// The flags of up to 64 characters, followed by zeros.
#[inline(always)]
pub fn read_wide(table: &Table, seen: &Seen, n_rest: usize, places: &mut Places) -> ([u8; 64], Extent) {
    let length = n_rest.min(SEEN_BEGIN);
    let mut flags = [0; 64];
    let (mut n, mut at) = (0, 0);
    // Tried and dropped: taking eight ASCII characters at once (0.9 times as fast on multilingual text); finding first bytes by a
    // mask, without a branch on the length (0.8 times).
    while n < 64 && at < length {
        places.0[n] = at as u8;
        let byte = seen[at & 255];
        if byte < 0x80 {
            flags[n] = table.ascii(byte);
            at += 1;
        } else {
            let next = [seen[(at & 255) + 1], seen[(at & 255) + 2], seen[(at & 255) + 3]];
            let (found, length) = table.wide(byte, next);
            flags[n] = found;
            at += length;
        }
        n += 1;
    }
    (flags, Extent { n: n as u32, more: at < n_rest })
}

/// The character classes that all patterns except deepseek distinguish.
pub struct Classes {
    pub upper: u64,
    pub lower: u64,
    /// Letters without case.
    pub caseless: u64,
    pub mark: u64,
    pub number: u64,
    pub space: u64,
    /// U+0020.
    pub blank: u64,
    /// CR and LF.
    pub line: u64,
    pub quote: u64,
    pub slash: u64,
    /// In ASCII this is upper and lower together, which is cheaper to compute than each.
    pub letter: u64,
}

impl Classes {
    pub const TABLE: &'static Table = &GENERAL;

    #[inline(always)]
    pub fn of_ascii(block: &impl Block) -> Self {
        let blank = block.equal(b' ');
        Self {
            upper: block.between(b'A', b'Z'),
            lower: block.between(b'a', b'z'),
            caseless: 0,
            mark: 0,
            number: block.between(b'0', b'9'),
            space: blank | block.between(9, 13),
            blank,
            line: block.equal(b'\r') | block.equal(b'\n'),
            quote: block.equal(b'\''),
            slash: block.equal(b'/'),
            letter: block.letters(),
        }
    }

    #[inline(always)]
    pub fn of_flags(block: &impl Block) -> Self {
        let (upper, lower, caseless) = (block.bit(0), block.bit(1), block.bit(2));
        let (space, line_or_quote, blank_or_slash) = (block.bit(5), block.bit(6), block.bit(7));
        Self {
            upper,
            lower,
            caseless,
            mark: block.bit(3),
            number: block.bit(4),
            space,
            blank: blank_or_slash & space,
            line: line_or_quote & space,
            quote: line_or_quote & !space,
            slash: blank_or_slash & !space,
            letter: upper | lower | caseless,
        }
    }
}

/// Whether the flags of the general table are those of U+0020. The next functions ask for CR or LF, an apostrophe, and a slash.
pub fn is_blank(flags: u8) -> bool {
    flags == crate::split::unicode::SPACE | BLANK_OR_SLASH
}

pub fn is_line(flags: u8) -> bool {
    flags == crate::split::unicode::SPACE | LINE_OR_QUOTE
}

pub fn is_quote(flags: u8) -> bool {
    flags == LINE_OR_QUOTE
}

pub fn is_slash(flags: u8) -> bool {
    flags == BLANK_OR_SLASH
}

/// The length in characters and bytes of the contraction that begins with an apostrophe at `at`; (0, 0) if there is none. With
/// `any_case`, s also matches S and U+017F, as the regex engine's case folding does.
#[inline(always)]
pub fn contraction(bytes: &[u8], at: usize, any_case: bool) -> (u32, usize) {
    let fold = |byte: Option<&u8>| byte.map_or(0, |byte| if any_case { byte | 0x20 } else { *byte });
    let second = bytes.get(at + 2);
    match (fold(bytes.get(at + 1)), fold(second)) {
        (b's' | b't' | b'm' | b'd', _) => (2, 2),
        (b'r' | b'v', b'e') | (b'l', b'l') => (3, 3),
        (0xE5, _) if any_case && bytes.get(at + 1) == Some(&0xC5) && second == Some(&0xBF) => (2, 3),
        _ => (0, 0),
    }
}
