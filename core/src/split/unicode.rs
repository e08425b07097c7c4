//! Character classes as flags, in two tables that build.rs makes from the regex engine's own classes (regex-syntax 0.8.11:
//! Unicode 16.0).
//!
//! Invariant: a flag is set exactly for the characters of the regex engine's class; a test compares every code point.
//! Cost: one load for ASCII, two for other characters. A table takes about 50 KB, of which a text touches a few cache lines.

include!(concat!(env!("OUT_DIR"), "/unicode_tables.rs"));

/// Flags of the general table: \p{Lu} and \p{Lt}, \p{Ll}, \p{Lm} and \p{Lo}, \p{M}, \p{N}, \s.
pub const UPPER: u8 = 1;
pub const LOWER: u8 = 2;
pub const CASELESS: u8 = 4;
pub const LETTER: u8 = UPPER | LOWER | CASELESS;
pub const MARK: u8 = 8;
pub const NUMBER: u8 = 16;
pub const SPACE: u8 = 32;
/// With SPACE: CR or LF. Without SPACE: the apostrophe.
pub const LINE_OR_QUOTE: u8 = 64;
/// With SPACE: U+0020. Without SPACE: the slash.
pub const BLANK_OR_SLASH: u8 = 128;

/// Flags by code point, in blocks of 64, which is the range that the last byte of a UTF-8 character covers.
pub struct Table {
    ascii: [u8; 128],
    /// The block of each code point / 64.
    index: [u16; 0x11_0000 / 64],
    blocks: &'static [[u8; 64]],
}

impl Table {
    #[inline(always)]
    pub fn ascii(&self, byte: u8) -> u8 {
        self.ascii[usize::from(byte & 127)]
    }

    /// The flags and length of a character whose first byte is 0x80 or higher. `next`: the three bytes after it.
    #[inline(always)]
    pub fn wide(&self, first: u8, next: [u8; 3]) -> (u8, usize) {
        let [a, b, c] = next.map(|byte| usize::from(byte & 63));
        let first = usize::from(first);
        let (block, low, length) = match first {
            ..0xE0 => (first & 31, a, 2),
            0xE0..0xF0 => ((first & 15) << 6 | a, b, 3),
            _ => ((first & 7) << 12 | a << 6 | b, c, 4),
        };
        let block = usize::from(self.index.get(block).copied().unwrap_or(0));
        (self.blocks[block][low], length)
    }

    /// The flags and length of the character at `at`; (0, 0) at the end.
    #[inline(always)]
    pub fn at(&self, bytes: &[u8], at: usize) -> (u8, usize) {
        match bytes.get(at..) {
            Some([byte @ ..0x80, ..]) => (self.ascii(*byte), 1),
            Some([first, a, b, c, ..]) => self.wide(*first, [*a, *b, *c]),
            Some([first, a, b]) => self.wide(*first, [*a, *b, 0]),
            Some([first, a]) => self.wide(*first, [*a, 0, 0]),
            _ => (0, 0),
        }
    }

    /// The end of the run, from `at`, of characters that have at least one of the flags `any`.
    #[inline(always)]
    pub fn run(&self, bytes: &[u8], mut at: usize, any: u8) -> usize {
        loop {
            let (flags, length) = self.at(bytes, at);
            if flags & any == 0 {
                return at;
            }
            at += length;
        }
    }

    /// The end of the run, from `at`, of characters that have none of the flags.
    #[inline(always)]
    pub fn run_without(&self, bytes: &[u8], mut at: usize, none: u8) -> usize {
        loop {
            let (flags, length) = self.at(bytes, at);
            if length == 0 || flags & none != 0 {
                return at;
            }
            at += length;
        }
    }
}
