//! The scanner for superbpe, whose pieces are sentences: it finds numbers, punctuation, and spaces at the end of a run, and all
//! between them is one piece.

use crate::split::unicode::{BLANK_OR_SLASH, GENERAL, LETTER, NUMBER, SPACE};

const DIGITS_MAX: usize = 3;

/// The end of the piece that begins at `at`.
pub fn end(bytes: &[u8], at: usize) -> usize {
    let found = found(bytes, at);
    if found > at {
        return found;
    }
    let mut end = at;
    loop {
        end = match bytes.get(end) {
            None => return end,
            Some(byte) if byte.is_ascii_alphabetic() => end + 1,
            Some(_) => {
                if end > at && self::found(bytes, end) > end {
                    return end;
                }
                end + GENERAL.at(bytes, end).1
            }
        };
    }
}

/// The end of the match that begins at `at`; `at` if there is none.
fn found(bytes: &[u8], at: usize) -> usize {
    let (flags, length) = GENERAL.at(bytes, at);
    if flags & NUMBER != 0 {
        let mut end = at;
        for _ in 0..DIGITS_MAX {
            match GENERAL.at(bytes, end) {
                (flags, length) if flags & NUMBER != 0 => end += length,
                _ => break,
            }
        }
        return end;
    }
    let is_blank = flags & SPACE != 0 && flags & BLANK_OR_SLASH != 0;
    let marks = GENERAL.run_without(bytes, if is_blank { at + length } else { at }, LETTER | NUMBER | SPACE);
    if is_blank && marks == at + length {
        return blanks(bytes, at);
    }
    let first = if is_blank { at + length } else { at };
    if marks <= first + GENERAL.at(bytes, first).1 {
        return at; // none, or a single one
    }
    marks + bytes[marks..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n' | b'/')).count()
}

/// The end of a run of U+0020, without the last one if no other white space follows it.
fn blanks(bytes: &[u8], at: usize) -> usize {
    let end = at + bytes[at..].iter().take_while(|&&byte| byte == b' ').count();
    let is_last = end == bytes.len() || GENERAL.at(bytes, end).0 & SPACE != 0;
    if is_last { end } else { end - 1 }
}
