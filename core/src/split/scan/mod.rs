//! Finds pre-tokens without a regex engine. Each named pattern has a scanner, which is chosen by the text of its steps.
//!
//! A window is up to 64 characters, and begins with a piece. For each class of characters it becomes a 64-bit word with one bit
//! per character. The pattern's rules about neighbours are then bit operations on those words, which give all places in the
//! window where a piece begins. What a window cannot decide (a piece longer than it, a rare case) is found one character at a
//! time, by `end`.
//! Invariant: the pieces are those of the regexes as crate::split::pattern runs them; tests compare both ways with the regexes.
//! Cost: O(n); about 100 cycles for a window of ASCII, 400 with other characters.

#[cfg(all(target_arch = "x86_64", not(feature = "portable")))]
mod avx512;
#[cfg(any(not(target_arch = "x86_64"), feature = "portable"))]
#[path = "no_avx512.rs"]
mod avx512;
mod block;
mod cl100k;
mod deepseek;
mod gpt2;
mod o200k;
mod superbpe;
#[cfg(test)]
mod tests;
mod window;

use crate::parallel::interrupt::{Result, Stop};
use crate::split::named::{
    CL100K, DEEPSEEK, DIGITS, GPT2, LIKE_CL100K, LIKE_GPT2, LIKE_LLAMA3, LLAMA3, O200K, QWEN2, SUPERBPE,
};
use crate::split::sink::{PIECES_MAX, Sink};
use avx512::Vectors;
use cl100k::Cl100k;
use deepseek::Deepseek;
use gpt2::Gpt2;
use o200k::O200k;
use window::{Places, Rule, Seen, Window, window};

/// The number of pieces found one by one after a window that decided nothing, because rare cases cluster.
const SINGLY: usize = 4;

/// A scanner for one of the named patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanner {
    Gpt2,
    Starcoder,
    Cl100k,
    Llama3,
    Qwen2,
    O200k,
    Deepseek,
    Superbpe,
}

impl Scanner {
    /// The scanner for these steps, if there is one.
    pub fn of(steps: &[&str]) -> Option<Self> {
        let is_gpt2 = |step: &str| step == GPT2 || LIKE_GPT2.contains(&step);
        match steps {
            [step] if is_gpt2(step) => Some(Self::Gpt2),
            [step] if *step == CL100K || LIKE_CL100K.contains(step) => Some(Self::Cl100k),
            [step] if *step == LLAMA3 || LIKE_LLAMA3.contains(step) => Some(Self::Llama3),
            [step] if *step == QWEN2 => Some(Self::Qwen2),
            [step] if *step == O200K => Some(Self::O200k),
            [step] if *step == SUPERBPE => Some(Self::Superbpe),
            [first, step] if *first == DIGITS && is_gpt2(step) => Some(Self::Starcoder),
            _ if *steps == DEEPSEEK => Some(Self::Deepseek),
            _ => None,
        }
    }

    /// Passes the pieces of `text` to `sink`, in order.
    #[inline]
    pub fn split(self, text: &str, stop: &Stop, sink: &mut impl Sink) -> Result<()> {
        self.split_with(Vectors::of_processor(), text, stop, sink)
    }

    #[inline]
    fn split_with(self, vectors: Option<Vectors>, text: &str, stop: &Stop, sink: &mut impl Sink) -> Result<()> {
        let bytes = text.as_bytes();
        let (mut places, mut padded) = (Places::default(), [0; size_of::<Seen>()]);
        let (mut ends, mut n, mut from) = ([0; PIECES_MAX], 0, 0);
        let mut at = 0;
        let mut n_windows = 0_u8;
        while at < bytes.len() {
            n_windows = n_windows.wrapping_add(1);
            if n_windows == 0 {
                stop.check()?;
            }
            if let Some(vectors) = vectors {
                (n, at) = self.fill(vectors, bytes, at, &mut ends, n);
                if n >= PIECES_MAX / 2 {
                    sink.put_all(from, &ends[..n])?;
                    (n, from) = (0, at);
                    continue;
                }
            }
            let rest = &bytes[at..];
            let seen = rest.first_chunk().unwrap_or_else(|| {
                padded = [0; size_of::<Seen>()];
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            });
            let Window { mut starts, wide, last } = self.window(seen, bytes, at, &mut places);
            let n_before = n;
            while starts != 0 {
                let i = starts.trailing_zeros();
                ends[n & (PIECES_MAX - 1)] = at + if wide { places.of(i) } else { i as usize };
                starts &= starts - 1;
                n += 1;
            }
            if last {
                ends[n & (PIECES_MAX - 1)] = bytes.len();
                n += 1;
            } else if n == n_before {
                let mut end = at;
                while n < n_before + SINGLY && end < bytes.len() {
                    end = self.end(bytes, end);
                    ends[n & (PIECES_MAX - 1)] = end;
                    n += 1;
                }
            }
            at = ends[(n - 1) & (PIECES_MAX - 1)];
            if n >= PIECES_MAX / 2 {
                sink.put_all(from, &ends[..n])?;
                (n, from) = (0, at);
            }
        }
        sink.put_all(from, &ends[..n])
    }

    #[inline(always)]
    fn fill(
        self,
        vectors: Vectors,
        bytes: &[u8],
        at: usize,
        ends: &mut [usize; PIECES_MAX],
        n: usize,
    ) -> (usize, usize) {
        match self {
            Self::Gpt2 => vectors.fill::<Gpt2<false>>(bytes, at, ends, n),
            Self::Starcoder => vectors.fill::<Gpt2<true>>(bytes, at, ends, n),
            Self::Cl100k => vectors.fill::<Cl100k<3, true>>(bytes, at, ends, n),
            Self::Llama3 => vectors.fill::<Cl100k<3, false>>(bytes, at, ends, n),
            Self::Qwen2 => vectors.fill::<Cl100k<1, false>>(bytes, at, ends, n),
            Self::O200k => vectors.fill::<O200k>(bytes, at, ends, n),
            Self::Deepseek => vectors.fill::<Deepseek>(bytes, at, ends, n),
            Self::Superbpe => (n, at),
        }
    }

    #[inline(never)]
    fn window(self, seen: &Seen, bytes: &[u8], at: usize, places: &mut Places) -> Window {
        match self {
            Self::Gpt2 => window::<Gpt2<false>>(seen, bytes, at, places),
            Self::Starcoder => window::<Gpt2<true>>(seen, bytes, at, places),
            Self::Cl100k => window::<Cl100k<3, true>>(seen, bytes, at, places),
            Self::Llama3 => window::<Cl100k<3, false>>(seen, bytes, at, places),
            Self::Qwen2 => window::<Cl100k<1, false>>(seen, bytes, at, places),
            Self::O200k => window::<O200k>(seen, bytes, at, places),
            Self::Deepseek => window::<Deepseek>(seen, bytes, at, places),
            Self::Superbpe => Window { starts: 0, wide: false, last: false }, // most pieces are longer than a window
        }
    }

    /// The end of the piece that begins at `at`.
    fn end(self, bytes: &[u8], at: usize) -> usize {
        match self {
            Self::Gpt2 => Gpt2::<false>::end(bytes, at),
            Self::Starcoder => Gpt2::<true>::end(bytes, at),
            Self::Cl100k => Cl100k::<3, true>::end(bytes, at),
            Self::Llama3 => Cl100k::<3, false>::end(bytes, at),
            Self::Qwen2 => Cl100k::<1, false>::end(bytes, at),
            Self::O200k => O200k::end(bytes, at),
            Self::Deepseek => Deepseek::end(bytes, at),
            Self::Superbpe => superbpe::end(bytes, at),
        }
    }
}
