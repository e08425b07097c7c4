//! Cuts text between two characters that no merge brings into one token.
//!
//! Invariant: characters that stand side by side in a token that merges make are never cut apart, so the pieces are merged as the
//! whole text would be. Characters outside ASCII are told apart only by whether they ever begin and end such a neighbourhood;
//! with Llama-2's merges this cuts 2 % less often in 21 languages than all pairs of characters would. Cost: O(n), a look-up or
//! two for each character.

use crate::parallel::interrupt::{Result, Stop};
use crate::split::sink::{PIECES_MAX, Sink};
use std::sync::Arc;

/// ASCII characters are their own kind. Others have one of four kinds, from OTHER on, made of these bits.
const OTHER: u8 = 128;
const BEFORE: u8 = 1;
const BEHIND: u8 = 2;
const KINDS: usize = OTHER as usize + 4;
/// All characters from this one on have one kind.
const ASTRAL: usize = 1 << 16;
/// The number of characters between two checks of `stop`.
const CHECKED_CHARACTERS: usize = 1 << 16;

/// Which characters may stand side by side in a token. A clone shares the tables.
#[derive(Clone)]
pub struct Joins(Arc<Tables>);

struct Tables {
    /// The kinds of characters, by their code.
    kinds: Vec<u8>,
    /// For a kind: one bit for each kind that may follow it.
    followers: Vec<[u64; KINDS.div_ceil(64)]>,
}

impl Joins {
    /// The neighbourhoods in tokens that merges make.
    pub fn new<'t>(tokens: impl Iterator<Item = &'t str> + Clone) -> Self {
        let neighbours = || tokens.clone().flat_map(|token| token.chars().zip(token.chars().skip(1)));
        let mut kinds: Vec<u8> = (0..=ASTRAL).map(|code| OTHER.min(code.min(255) as u8)).collect();
        for (before, behind) in neighbours() {
            for (character, bit) in [(before, BEFORE), (behind, BEHIND)] {
                if !character.is_ascii() {
                    kinds[place_of(character)] |= bit;
                }
            }
        }
        let mut tables = Tables { kinds, followers: vec![Default::default(); KINDS] };
        for (before, behind) in neighbours() {
            let [before, behind] = [before, behind].map(|one| usize::from(tables.kinds[place_of(one)]));
            tables.followers[before][behind / 64] |= 1 << (behind % 64);
        }
        Self(Arc::new(tables))
    }

    /// Passes the pieces of `text` to `sink`, in order.
    pub fn split(&self, text: &str, stop: &Stop, sink: &mut impl Sink) -> Result<()> {
        let Tables { kinds, followers } = &*self.0;
        let (mut ends, mut n, mut from) = ([0; PIECES_MAX], 0, 0);
        let mut after = [u64::MAX; KINDS.div_ceil(64)];
        for (i, (at, character)) in text.char_indices().enumerate() {
            let kind = usize::from(kinds[place_of(character)]);
            ends[n] = at;
            // Without a branch, which would often be mispredicted.
            n += usize::from(after[kind / 64] >> (kind % 64) & 1 == 0);
            after = followers[kind];
            if n == PIECES_MAX - 1 {
                sink.put_all(from, &ends[..n])?;
                (from, n) = (ends[n - 1], 0);
            }
            if i % CHECKED_CHARACTERS == 0 {
                stop.check()?;
            }
        }
        if text.is_empty() {
            return Ok(());
        }
        ends[n] = text.len();
        sink.put_all(from, &ends[..=n])
    }
}

#[inline(always)]
fn place_of(character: char) -> usize {
    (character as usize).min(ASTRAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::sink::Each;

    fn pieces(tokens: &[&str], text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut emit = |piece: &str| {
            found.push(piece.to_string());
            Ok(())
        };
        let joins = Joins::new(tokens.iter().copied());
        joins.split(text, &Stop::default(), &mut Each { text, emit: &mut emit }).unwrap();
        found
    }

    #[test]
    fn only_neighbours_of_some_token_stay_together() {
        assert_eq!(pieces(&[" ab", "bc"], " abcab ab"), [" abc", "ab", " ab"]);
        assert_eq!(pieces(&["a"], "aab"), ["a", "a", "b"]);
        assert_eq!(pieces(&["  "], "a   b"), ["a", "   ", "b"]);
        assert!(pieces(&["ab"], "").is_empty());
    }

    #[test]
    fn characters_outside_ascii_are_cut_where_no_token_has_them() {
        assert_eq!(pieces(&["äb", "中文"], "aäb中文字äbä"), ["a", "äb", "中文", "字", "äb", "ä"]);
        assert_eq!(pieces(&["😀a"], "🙂a😀🙂"), ["🙂a", "😀", "🙂"]); // all beyond U+FFFF are of one kind
    }

    #[test]
    fn many_pieces_come_out_whole() {
        let text = "ab中".repeat(1_000);
        let found = pieces(&["ab"], &text);
        assert_eq!((found.len(), found.concat()), (2_000, text));
    }
}
