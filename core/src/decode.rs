//! Ids → bytes: each id's bytes, one after another.
//!
//! Invariant: an id that is not in the vocabulary is an error, never left out. Cost: O(bytes written).

use crate::guard::{CoreError, Result};
use rustc_hash::FxHashMap;

/// The bytes of every token, in one arena.
#[derive(Default)]
pub struct Decoder {
    arena: Vec<u8>,
    /// Spans of the ids from 0 on; an end of 0 is a hole (no token is empty).
    dense: Vec<(u32, u32)>,
    /// Spans of ids so large that a dense table would waste memory.
    sparse: FxHashMap<u32, (u32, u32)>,
    id_max: u32,
}

impl Decoder {
    /// From tokens and their ids. Two tokens with one id, and an empty token, are errors.
    pub fn new<'t>(tokens: impl ExactSizeIterator<Item = (u32, &'t [u8])>) -> Result<Self> {
        let dense_max = 4 * tokens.len() + 1024;
        let mut decoder = Self::default();
        for (id, bytes) in tokens {
            let start = decoder.arena.len() as u32;
            decoder.arena.extend_from_slice(bytes);
            let end = u32::try_from(decoder.arena.len())
                .map_err(|_| CoreError::Tokenizer("the tokens have more than 2^32 bytes together.".to_string()))?;
            if bytes.is_empty() {
                return Err(CoreError::Tokenizer(format!("the token with id {id} is empty.")));
            }
            if decoder.span(id).is_some() {
                return Err(CoreError::Tokenizer(format!("two tokens have the id {id}.")));
            }
            if (id as usize) < dense_max {
                let needed = decoder.dense.len().max(id as usize + 1);
                decoder.dense.resize(needed, (0, 0));
                decoder.dense[id as usize] = (start, end);
            } else {
                decoder.sparse.insert(id, (start, end));
            }
            decoder.id_max = decoder.id_max.max(id);
        }
        Ok(decoder)
    }

    /// The bytes of a token, if there is one with this id.
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        self.span(id).map(|(start, end)| &self.arena[start as usize..end as usize])
    }

    /// Appends the bytes of all tokens to `out`.
    pub fn decode(&self, ids: impl Iterator<Item = u32>, out: &mut Vec<u8>) -> Result<()> {
        for id in ids {
            let bytes = self.token(id).ok_or_else(|| {
                CoreError::Tokenizer(format!("id {id} is not in the vocabulary; its largest id is {}.", self.id_max))
            })?;
            out.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn span(&self, id: u32) -> Option<(u32, u32)> {
        match self.dense.get(id as usize) {
            Some(&span) => Some(span).filter(|(_, end)| *end > 0),
            None => self.sparse.get(&id).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(tokens: &[(u32, &str)]) -> Result<Decoder> {
        Decoder::new(tokens.iter().map(|(id, text)| (*id, text.as_bytes())))
    }

    #[test]
    fn ids_near_and_far_decode() {
        let mut out = Vec::new();
        let known = decoder(&[(0, "a"), (4_000_000_000, "b"), (7, "cd")]).unwrap();
        known.decode([7, 0, 4_000_000_000].into_iter(), &mut out).unwrap();
        assert_eq!(out, b"cdab");
    }

    #[test]
    fn an_unknown_id_is_named() {
        let found = decoder(&[(0, "a"), (7, "b")]).unwrap().decode([3].into_iter(), &mut Vec::new());
        assert!(matches!(found, Err(CoreError::Tokenizer(text)) if text.contains("id 3 is not")));
    }

    #[test]
    fn two_tokens_with_one_id_are_refused() {
        assert!(matches!(decoder(&[(1, "a"), (1, "b")]), Err(CoreError::Tokenizer(text)) if text.contains("id 1")));
    }
}
