//! Cuts text between two bytes that no token has side by side.
//!
//! Invariant: no merge crosses a cut, so the pieces are merged as the whole text would be. No character is cut. Cost: O(n), a
//! look-up for each byte.

use crate::parallel::interrupt::{Result, Stop};
use crate::split::sink::{PIECES_MAX, Sink};
use std::sync::Arc;

/// Which bytes may stand side by side in a token. A clone shares the table.
#[derive(Clone)]
pub struct ByteJoins(Arc<[[bool; 256]; 256]>);

impl ByteJoins {
    /// The neighbourhoods in `tokens`, which must be all that merges make.
    pub fn new<'t>(tokens: impl Iterator<Item = &'t [u8]>) -> Self {
        let mut apart = [[true; 256]; 256];
        apart.iter_mut().for_each(|behind| behind[0x80..0xc0].fill(false)); // inside of a character
        for token in tokens {
            token.windows(2).for_each(|two| apart[usize::from(two[0])][usize::from(two[1])] = false);
        }
        Self(Arc::new(apart))
    }

    /// Passes the pieces of `text` to `sink`, in order.
    pub fn split(&self, text: &str, stop: &Stop, sink: &mut impl Sink) -> Result<()> {
        let Some((&first, rest)) = text.as_bytes().split_first() else { return Ok(()) };
        let (mut ends, mut n, mut from) = ([0; PIECES_MAX], 0, 0);
        let mut before = first;
        for (i, &byte) in rest.iter().enumerate() {
            ends[n] = i + 1;
            n += usize::from(self.0[usize::from(before)][usize::from(byte)]); // a branch would often be mispredicted
            before = byte;
            if n == PIECES_MAX - 1 {
                stop.check()?;
                sink.put_all(from, &ends[..n])?;
                (from, n) = (ends[n - 1], 0);
            }
        }
        ends[n] = text.len();
        sink.put_all(from, &ends[..=n])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::sink::Each;

    fn pieces(tokens: &[&[u8]], text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut emit = |piece: &str| {
            found.push(piece.to_string());
            Ok(())
        };
        let joins = ByteJoins::new(tokens.iter().copied());
        joins.split(text, &Stop::default(), &mut Each { text, emit: &mut emit }).unwrap();
        found
    }

    #[test]
    fn only_neighbours_in_some_token_stay_together() {
        assert_eq!(pieces(&[b" ab", b"bc"], " abcab ab"), [" abc", "ab", " ab"]);
        assert_eq!(pieces(&[b"a"], "aab"), ["a", "a", "b"]);
        assert!(pieces(&[b"ab"], "").is_empty());
    }

    #[test]
    fn no_character_is_cut_and_a_token_may_end_inside_of_one() {
        assert_eq!(pieces(&[], "é中a"), ["é", "中", "a"]);
        assert_eq!(pieces(&[b" \xc3"], "a é ü ñ中"), ["a", " é", " ü", " ñ", "中"]);
    }

    #[test]
    fn many_pieces_come_out_whole() {
        let text = "ab中".repeat(1_000);
        let found = pieces(&[b"ab"], &text);
        assert_eq!((found.len(), found.concat()), (2_000, text));
    }
}
