//! The pre-tokens of a text → ids, mostly through the cache.
//!
//! Invariant: the ids are in the order of the pre-tokens. The keys of a block of pre-tokens are computed first, and looked up
//! after the keys of the next block; meanwhile their cache lines are prefetched.
//! Cost: about 50 cycles for a pre-token that is in its line.

use crate::encode::cache::{Key, Lines, SHORT_BYTES_MAX};
use crate::encode::merge::Scratch;
use crate::encode::new_pretoken::NewPretokens;
use crate::encode::shared_cache::Reader;
use crate::memory::out_buffer::Tail;
use crate::parallel::interrupt::{CoreError, Result, Stop};
use crate::split::pattern::Pattern;
use crate::split::sink::{PIECES_MAX, Sink};
use std::ops::Range;

/// Pre-tokens that come one by one are collected up to this number.
const N_WAITING: usize = 16;

/// The key of a pre-token, and where it begins in the present part of the text.
#[derive(Clone, Copy, Default)]
struct Named {
    key: Key,
    place: usize,
}

/// Pre-tokens that wait while their cache lines are prefetched.
pub struct Waiting {
    n: usize,
    named: [Named; PIECES_MAX],
}

impl Default for Waiting {
    fn default() -> Self {
        Self { n: 0, named: [Named::default(); PIECES_MAX] }
    }
}

/// The encoding of one text.
pub struct TextEncoding<'r, 's> {
    pub new: &'r NewPretokens,
    pub text: &'r str,
    /// Where the part of the text that is being split begins.
    pub start: usize,
    pub cache: &'r mut Reader<'s>,
    pub scratch: &'r mut Scratch,
    pub stop: &'r Stop<'r>,
    pub ids: &'r mut Tail<u32>,
    /// The block being collected (at index `coming`), and the block to be looked up next.
    pub waiting: &'r mut [Waiting; 2],
    pub coming: usize,
}

impl Sink for TextEncoding<'_, '_> {
    fn put(&mut self, from: usize, to: usize) -> Result<()> {
        match Key::of(&self.text.as_bytes()[self.start + from..self.start + to]) {
            Some(key) => {
                self.cache.lines().prefetch(key);
                let coming = &mut self.waiting[self.coming];
                coming.named[coming.n] = Named { key, place: from };
                coming.n += 1;
                if coming.n >= N_WAITING { self.turn() } else { Ok(()) }
            }
            None => {
                self.put_waiting()?;
                self.put_new(from..to, None)
            }
        }
    }

    #[inline(never)]
    fn put_all(&mut self, mut from: usize, ends: &[usize]) -> Result<()> {
        let bytes = &self.text.as_bytes()[self.start..];
        let Some(last) = bytes.len().checked_sub(16) else {
            return ends.iter().try_for_each(|&end| self.put(std::mem::replace(&mut from, end), end));
        };
        let lines = self.cache.lines();
        let coming = &mut self.waiting[self.coming];
        debug_assert_eq!(coming.n, 0, "pieces come one by one, or many at once");
        for (i, (&end, named)) in ends.iter().zip(&mut coming.named).enumerate() {
            let n = end - from;
            if n <= SHORT_BYTES_MAX
                && from <= last
                && let Some(first) = bytes[from..].first_chunk()
            {
                *named = Named { key: Key::short(*first, n), place: from };
            } else if let Some(key) = Key::of(&bytes[from..end]) {
                *named = Named { key, place: from };
            } else {
                coming.n = i;
                return self.put_longest(from, end, &ends[i + 1..]);
            }
            lines.prefetch(named.key);
            from = end;
        }
        coming.n = ends.len();
        self.turn()
    }
}

impl TextEncoding<'_, '_> {
    /// Handles a pre-token that is too long for the cache, and those after it.
    #[cold]
    #[inline(never)]
    fn put_longest(&mut self, from: usize, end: usize, next: &[usize]) -> Result<()> {
        self.put_waiting()?;
        self.put_new(from..end, None)?;
        self.put_all(end, next)
    }

    /// Appends the ids of a part of the text without added tokens.
    pub fn put_text(&mut self, pattern: &Pattern, part: Range<usize>) -> Result<()> {
        self.start = part.start;
        let text = self.text;
        pattern.split_into(&text[part], self.stop, self)?;
        self.put_waiting()
    }

    /// Looks up the block that has waited longest.
    #[inline(always)]
    fn turn(&mut self) -> Result<()> {
        self.coming ^= 1;
        self.put_those(self.coming)
    }

    /// Appends the ids of all waiting pre-tokens.
    fn put_waiting(&mut self) -> Result<()> {
        self.turn()?;
        self.turn()
    }

    #[inline(always)]
    fn put_those(&mut self, which: usize) -> Result<()> {
        let n = self.waiting[which].n;
        let mut n_put = 0;
        loop {
            let named = &self.waiting[which].named[n_put..n];
            n_put += put_known(named, self.cache.lines(), self.ids);
            if n_put == n {
                break;
            }
            self.put_rare(self.waiting[which].named[n_put])?;
            n_put += 1;
        }
        self.waiting[which].n = 0;
        Ok(())
    }

    #[inline(never)]
    fn put_rare(&mut self, Named { key, place }: Named) -> Result<()> {
        let place = place..place + key.n_bytes();
        let bytes = &self.text.as_bytes()[self.start..][place.clone()];
        if self.cache.extend(key, bytes, self.ids) {
            return Ok(());
        }
        self.put_new(place, Some(key))
    }

    /// Finds the token of the whole pre-token, or merges it, and caches the result.
    #[inline(never)]
    fn put_new(&mut self, place: Range<usize>, key: Option<Key>) -> Result<()> {
        let (bytes, before) = (&self.text.as_bytes()[self.start..][place.clone()], self.ids.n());
        if bytes.len() >= u32::MAX as usize {
            return Err(CoreError::Tokenizer(format!("a pre-token has {} bytes; at most 2^32 - 2.", bytes.len())));
        }
        self.new.put(key, bytes, self.scratch, self.stop, self.ids)?.map_err(|at| {
            CoreError::Tokenizer(format!(
                "the vocabulary has no token for the byte 0x{:02x} at byte {}. Use a tokenizer with all 256 bytes.",
                bytes[at],
                self.start + place.start + at
            ))
        })?;
        if let Some(key) = key {
            self.cache.insert(key, bytes, &self.ids.as_slice()[before..]);
        }
        Ok(())
    }
}

/// Room for the ids of PIECES_MAX pre-tokens with few ids, as a power of two. WORDS: the four words written at once.
const ROOM: usize = (3 * PIECES_MAX).next_power_of_two();
const WORDS: usize = 4;
/// The number of ids for which there must be room at a time.
pub const AT_ONCE_IDS: usize = ROOM + WORDS;

/// Appends the ids of up to PIECES_MAX pre-tokens, up to the first one that is not in its cache line with few ids. Returns the
/// number of pre-tokens.
#[inline(never)]
fn put_known(named: &[Named], lines: Lines, ids: &mut Tail<u32>) -> usize {
    let Some(room) = ids.room(AT_ONCE_IDS).first_chunk_mut::<AT_ONCE_IDS>() else { return 0 };
    let (mut n_ids, mut rest) = (0, named.iter());
    let n_put = loop {
        let Some(one) = rest.next() else { break named.len() };
        let Some((words, n)) = lines.few(one.key) else { break named.len() - rest.len() - 1 };
        let at = n_ids % ROOM; // n_ids never exceeds ROOM, but the compiler does not know that
        room[at..at + WORDS].copy_from_slice(&words);
        n_ids += n;
    };
    ids.add(n_ids);
    n_put
}
