//! Ids → bytes: the bytes of each id, one after another.
//!
//! Invariant: an id that is not in the vocabulary is an error and never left out. Cost: O(bytes written); for a short token, one
//! load and one store of 16 bytes.

use crate::memory::out_buffer::Tail;
use crate::memory::pages::Pages;
use crate::memory::prefetch::prefetch;
use crate::parallel::interrupt::{CoreError, Result};
use rustc_hash::FxHashMap;

const SHORT_BYTES_MAX: usize = 15;
/// A short token is written as this many bytes, of which the last ones may be garbage.
const SHORT_ROOM_BYTES: usize = 16;
/// How many ids ahead short tokens are prefetched, if they are: 1.05 times as fast with 200,000 tokens.
const AHEAD_IDS: usize = 24;
/// Up to this many short tokens fit the processor's cache and need no prefetching.
const CACHED_TOKENS_MAX: usize = 1 << 16;
/// The number of ids for which room is reserved at a time.
const IDS_AT_A_TIME: usize = 256;
/// The number of ids that are decoded before their bytes are compared: these bytes stay in the processor's cache.
const IDS_COMPARED: usize = 1 << 12;
/// The number of bytes that are decoded between two checks whether to stop, unless a single token has more.
const CHECKED_BYTES: usize = 1 << 24;

/// The bytes of every token.
pub struct Decoder {
    arena: Vec<u8>,
    /// The spans of the ids from 0 on. An end of 0 marks an unused id (no token is empty).
    dense: Vec<(u32, u32)>,
    /// The bytes of the same ids, with their number in the last byte, which is 0 for unused ids and for longer tokens. In large
    /// pages (fewer TLB misses) decoding is 1.03 times as fast.
    short: Pages<[u8; SHORT_ROOM_BYTES]>,
    /// The spans of ids so large that a dense table would waste memory.
    sparse: FxHashMap<u32, (u32, u32)>,
    id_max: u32,
    longest_bytes: usize,
}

impl Decoder {
    /// A decoder for tokens and their ids. A duplicate id or an empty token is an error.
    pub fn new<'t>(tokens: impl ExactSizeIterator<Item = (u32, &'t [u8])>) -> Result<Self> {
        let dense_max = 4 * tokens.len() + 1024;
        let (mut arena, mut dense, mut sparse, mut id_max) = (Vec::new(), Vec::new(), FxHashMap::default(), 0);
        let mut longest_bytes = 1;
        for (id, bytes) in tokens {
            let start = arena.len() as u32;
            arena.extend_from_slice(bytes);
            let end = u32::try_from(arena.len())
                .map_err(|_| CoreError::Tokenizer("the tokens have more than 2^32 bytes together.".to_string()))?;
            if bytes.is_empty() {
                return Err(CoreError::Tokenizer(format!("the token with id {id} is empty.")));
            }
            let span = if (id as usize) < dense_max {
                dense.resize(dense.len().max(id as usize + 1), (0, 0));
                &mut dense[id as usize]
            } else {
                sparse.entry(id).or_default()
            };
            if std::mem::replace(span, (start, end)).1 > 0 {
                return Err(CoreError::Tokenizer(format!("two tokens have the id {id}.")));
            }
            id_max = id_max.max(id);
            longest_bytes = longest_bytes.max(bytes.len());
        }
        let mut short = Pages::new(dense.len());
        for (place, &(start, end)) in short.iter_mut().zip(&dense) {
            *place = packed(&arena[start as usize..end as usize]);
        }
        Ok(Self { arena, dense, short, sparse, id_max, longest_bytes })
    }

    /// The bytes of the token with this id, if there is one.
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        self.span(id).map(|(start, end)| &self.arena[start as usize..end as usize])
    }

    /// How many ids, up to `n_max`, may be decoded before a check whether to stop.
    pub fn n_checked(&self, n_max: usize) -> usize {
        (CHECKED_BYTES / self.longest_bytes).clamp(1, n_max)
    }

    /// Appends the bytes of all tokens to `out`.
    pub fn decode<I: Copy + Into<u32>>(&self, mut ids: &[I], out: &mut Tail<u8>) -> Result<()> {
        while !ids.is_empty() {
            let room = out.room(IDS_AT_A_TIME * SHORT_ROOM_BYTES);
            let (n_short, n_bytes) = if self.short.len() > CACHED_TOKENS_MAX {
                self.decode_short::<I, true>(ids, room)
            } else {
                self.decode_short::<I, false>(ids, room)
            };
            out.add(n_bytes);
            ids = &ids[n_short..];
            if let (Some((&id, rest)), true) = (ids.split_first(), n_short < IDS_AT_A_TIME) {
                out.extend(self.known(id.into())?);
                ids = rest;
            }
        }
        Ok(())
    }

    /// Whether the ids decode to `expected`, part after part. An id that is not in the vocabulary does not. `scratch` is for the
    /// decoded bytes, of which few are held at a time.
    pub fn decodes_to<I: Copy + Into<u32>>(&self, ids: &[I], expected: &[&[u8]], scratch: &mut Tail<u8>) -> bool {
        let mut parts = expected.iter();
        let mut rest: &[u8] = &[];
        for some in ids.chunks(self.n_checked(IDS_COMPARED)) {
            scratch.clear(usize::MAX);
            if self.decode(some, scratch).is_err() {
                return false;
            }
            let mut found = scratch.as_slice();
            while !found.is_empty() {
                if rest.is_empty() {
                    let Some(part) = parts.next() else { return false };
                    rest = part;
                }
                let n = rest.len().min(found.len());
                if rest[..n] != found[..n] {
                    return false;
                }
                (rest, found) = (&rest[n..], &found[n..]);
            }
        }
        rest.is_empty() && parts.all(|part| part.is_empty())
    }

    /// Writes the bytes of short tokens to `room`, up to the first token that is not short, or up to IDS_AT_A_TIME tokens.
    /// Returns the numbers of tokens and bytes.
    #[inline(always)]
    fn decode_short<I: Copy + Into<u32>, const AHEAD: bool>(&self, ids: &[I], room: &mut [u8]) -> (usize, usize) {
        let (mut n, mut at) = (0, 0);
        for &id in ids.iter().take(IDS_AT_A_TIME) {
            if AHEAD && let Some(entry) = ids.get(n + AHEAD_IDS).and_then(|&id| self.short.get(id.into() as usize)) {
                prefetch(entry);
            }
            match (self.short.get(id.into() as usize), room.get_mut(at..at + SHORT_ROOM_BYTES)) {
                (Some(bytes), Some(place)) if bytes[SHORT_BYTES_MAX] > 0 => {
                    place.copy_from_slice(bytes);
                    at += usize::from(bytes[SHORT_BYTES_MAX]);
                }
                _ => break,
            }
            n += 1;
        }
        (n, at)
    }

    #[cold]
    fn known(&self, id: u32) -> Result<&[u8]> {
        self.token(id).ok_or_else(|| {
            CoreError::Tokenizer(format!("id {id} is not in the vocabulary; its largest id is {}.", self.id_max))
        })
    }

    fn span(&self, id: u32) -> Option<(u32, u32)> {
        match self.dense.get(id as usize) {
            Some(&span) => Some(span).filter(|(_, end)| *end > 0),
            None => self.sparse.get(&id).copied(),
        }
    }
}

fn packed(bytes: &[u8]) -> [u8; SHORT_ROOM_BYTES] {
    let mut packed = [0; SHORT_ROOM_BYTES];
    if let Some(place) = packed[..SHORT_BYTES_MAX].get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
        packed[SHORT_BYTES_MAX] = bytes.len() as u8;
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(tokens: &[(u32, &str)]) -> Result<Decoder> {
        Decoder::new(tokens.iter().map(|(id, text)| (*id, text.as_bytes())))
    }

    #[test]
    fn any_number_of_tokens_of_any_length_decode_as_one_by_one() {
        let names: Vec<String> =
            (1..40).map(|n| "x".repeat(n)).chain((0..CACHED_TOKENS_MAX).map(|i| i.to_string())).collect();
        let tokens: Vec<(u32, &str)> = names
            .iter()
            .enumerate()
            .map(|(i, name)| (if i % 7 == 6 && i < 40 { 1 << 30 } else { 0 } + i as u32, &**name))
            .collect();
        for decoder in [decoder(&tokens[..39]).unwrap(), decoder(&tokens).unwrap()] {
            for n in [0, 1, 23, 24, 25, 255, 256, 257, 511, 512, 513, 5000] {
                for n_kinds in [3, 15, 16, 39] {
                    let ids: Vec<u32> = (0..n).map(|i| tokens[(i * i + i / 3) % n_kinds].0).collect();
                    let mut out = Tail::default();
                    decoder.decode(&ids, &mut out).unwrap();
                    assert_eq!(
                        out.take(),
                        ids.iter().flat_map(|&id| decoder.token(id).unwrap()).copied().collect::<Vec<u8>>()
                    );
                }
            }
        }
    }

    #[test]
    fn few_bytes_of_long_tokens_are_held_while_they_are_compared() {
        let long = "x".repeat(1 << 20);
        let mut scratch = Tail::default();
        assert!(!decoder(&[(0, &long)]).unwrap().decodes_to(&[0_u32; 64], &[b"xy"], &mut scratch));
        assert!(scratch.n() <= CHECKED_BYTES);
    }

    #[test]
    fn ids_decode_to_their_own_text_alone() {
        let decoder = decoder(&[(0, "a"), (1, "bc"), (9, "sixteen letters!")]).unwrap();
        let ids: Vec<u32> = (0..3 * IDS_COMPARED + 1).map(|i| [0, 1, 9][i % 7 % 3]).collect();
        let mut text = Tail::default();
        decoder.decode(&ids, &mut text).unwrap();
        let (text, n) = (text.take(), text.n());
        assert_eq!(n, 0);
        let mut scratch = Tail::default();
        let mut is = |ids: &[u32], parts: &[&[u8]]| decoder.decodes_to(ids, parts, &mut scratch);
        for cut in [0, 1, 17, text.len() / 2, text.len()] {
            assert!(is(&ids, &[&text[..cut], b"", &text[cut..]]));
        }
        assert!(!is(&ids, &[&text[..text.len() - 1]]) && !is(&ids, &[&text, b"", b"a"]) && !is(&ids[1..], &[&text]));
        for at in [0, IDS_COMPARED, text.len() / 2, text.len() - 1] {
            let mut other = text.clone();
            other[at] ^= 1;
            assert!(!is(&ids, &[&other]), "{at}");
        }
        assert!(is(&[], &[]) && is(&[], &[b"", b""]) && !is(&[], &[b"a"]) && !is(&[0], &[]));
        assert!(!is(&[0, 5], &[b"a"]));
    }
}
