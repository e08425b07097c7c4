//! Encodes a batch of texts in threads: each takes a piece of the batch, and the ids of the pieces stand in the order of the texts.
//!
//! Cost: that of encoding; the ids of all pieces but the first are copied once, within the core's own cache.

use super::pretokens::AT_ONCE_IDS;
use super::{Encoder, IDS_KEPT_MAX, Worker};
use crate::encode::id_block::{IdBlock, Ids};
use crate::memory::out_buffer::Tail;
use crate::memory::pages::Pages;
use crate::parallel::in_order::{Turn, in_order, pieces};
use crate::parallel::interrupt::{CoreError, Result, Stop};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The text that a thread encodes at a time. Its ids stay in the core's own cache.
const PIECE_BYTES: usize = 1 << 17;
/// The number of bytes encoded between two checks of `stop`.
const CHECKED_BYTES: usize = 1 << 16;
/// Spare room at the end of a batch, because ids are written in blocks.
const ROOM_IDS: usize = 1 << 10;
const _: () = assert!(ROOM_IDS >= AT_ONCE_IDS, "a piece in its place must not outgrow it");

/// The requested results of a batch.
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    /// The id that begins every text, if any.
    pub begin_id: Option<u32>,
    /// The id that ends every text, if any.
    pub end_id: Option<u32>,
    /// Whether ids are requested.
    pub ids: bool,
    /// Whether the offsets at which tokens begin are requested.
    pub starts: bool,
}

/// The result of a batch: all ids, the end of each text among them, and for each id the byte at which its token begins in its
/// text.
///
/// Ids that stand for no bytes of the text: `begin_id` begins where the text begins, `end_id` where it ends.
#[derive(Default)]
pub struct EncodedBatch {
    /// The ids of all texts, one after another.
    pub ids: Ids,
    /// The end of each text among the ids.
    pub ends: Vec<i64>,
    /// For each id, the byte at which its token begins; empty if not requested.
    pub starts: Vec<u64>,
}

/// The result of a worker for a piece of a batch.
#[derive(Default)]
struct Piece {
    ids: Tail<u32>,
    /// The list of its ids before they got their final place.
    before: Option<Tail<u32>>,
    ends: Vec<i64>,
    starts: Vec<u64>,
}

impl Piece {
    /// From now on, writes its ids at their final place, `rest`, unless that has been taken.
    fn settle(&mut self, rest: &Mutex<Option<Pages<u32>>>) {
        if self.before.is_some() {
            return;
        }
        if let Some(place) = rest.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let mut ids = Tail::from(place);
            ids.extend(self.ids.as_slice());
            let mut before = std::mem::replace(&mut self.ids, ids);
            before.clear(IDS_KEPT_MAX);
            self.before = Some(before);
        }
    }

    /// The part of the block after its ids; None if the ids are not at their final place.
    fn leave(&mut self) -> Option<Pages<u32>> {
        let ids = std::mem::replace(&mut self.ids, self.before.take()?);
        let n = ids.n();
        let mut pages = ids.into_pages()?;
        pages.split_to(n);
        Some(pages)
    }

    /// Copies its ids to `place`, if there is one, and empties their list.
    fn put(place: Option<Pages<u32>>, piece: &mut Self) {
        if let Some(mut place) = place {
            place.copy_from_slice(piece.ids.as_slice());
        }
        piece.ids.clear(IDS_KEPT_MAX);
    }
}

/// The batch so far, made of the pieces before the next one in the order of the texts.
struct Joined<'r> {
    batch: EncodedBatch,
    /// The part of the batch's block that is not filled yet; None while a piece writes there itself, or without a block.
    rest: &'r Mutex<Option<Pages<u32>>>,
    /// The ids, if there is no block for them.
    list: Vec<u32>,
    has_ids: bool,
}

impl Joined<'_> {
    /// Adds a piece, but for its ids if they have a place in the block: gives that place, to be filled by the caller.
    fn claim(&mut self, piece: &mut Piece) -> Option<Pages<u32>> {
        let before = self.batch.ends.last().copied().unwrap_or_default();
        self.batch.ends.extend(piece.ends.drain(..).map(|end| end + before));
        self.batch.starts.append(&mut piece.starts);
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pages) = piece.leave() {
            *rest = Some(pages);
            return None;
        }
        if let Some(rest) = &mut *rest {
            return Some(rest.split_to(piece.ids.n()));
        }
        match self.has_ids {
            true if self.list.is_empty() => self.list = piece.ids.take(),
            true => self.list.extend_from_slice(piece.ids.as_slice()),
            false => (),
        }
        None
    }
}

impl Encoder {
    /// Encodes the texts `text(i)` of `n_bytes(i)` bytes for i in 0..n, in `threads` threads.
    pub fn encode_batch<'t>(
        &self,
        n: usize,
        text: impl Fn(usize) -> Result<&'t str> + Sync,
        n_bytes: impl Fn(usize) -> usize,
        wanted: Wanted,
        threads: usize,
        stop: &Stop,
    ) -> Result<EncodedBatch> {
        let encode = |worker: &mut Worker, i: usize, piece: &mut Piece| {
            self.encode_one(worker, text(i)?, wanted, stop, piece).map_err(|error| match error {
                CoreError::Tokenizer(what) => CoreError::Tokenizer(format!("text {i}: {what}")),
                CoreError::Pattern(what) => CoreError::Pattern(format!("text {i}: {what}")),
                other => other,
            })
        };
        let n_bytes_of_all: usize = (0..n).map(&n_bytes).sum();
        let threads = threads.min(n_bytes_of_all / PIECE_BYTES + 1); // for less text, waking a thread takes longer
        let pieces = pieces(n, threads, PIECE_BYTES, &n_bytes);
        // More than one piece goes to a block, with room for one id per byte and the ids around the texts.
        let n_ids_max = n_bytes_of_all + 2 * n + ROOM_IDS;
        let mut block =
            if wanted.ids && n_bytes_of_all > PIECE_BYTES { IdBlock::new(n_ids_max, &self.spare) } else { None };
        if wanted.ids && (threads == 1 || pieces.len() <= 1) {
            return self.encode_all(n, n_bytes_of_all, encode, block);
        }
        let rest = block.as_mut().and_then(IdBlock::take);
        let begin = rest.as_deref().map(<[u32]>::as_ptr);
        let (has_block, rest) = (rest.is_some(), Mutex::new(rest));
        let work = |worker: &mut Worker, mut texts: Range<usize>, piece: &mut Piece, turn: &Turn| {
            texts.try_for_each(|i| {
                if has_block && turn.has_come() {
                    piece.settle(&rest);
                }
                encode(worker, i, piece)
            })
        };
        let hire = || {
            let mut worker = self.hire(n_bytes_of_all)?;
            let ids = std::mem::take(&mut worker.tools.list);
            Ok((worker, Piece { ids, ..Piece::default() }))
        };
        let release = |mut worker: Worker, piece: Piece| {
            worker.tools.list = piece.ids;
            self.release(worker);
        };
        let mut joined = Joined { batch: EncodedBatch::default(), rest: &rest, list: Vec::new(), has_ids: wanted.ids };
        in_order(&pieces, threads, stop, (hire, release), work, |piece| joined.claim(piece), Piece::put)?;
        let Joined { batch: EncodedBatch { ends, starts, .. }, list, .. } = joined;
        let Some(block) = block else { return Ok(EncodedBatch { ids: Ids::List(list), ends, starts }) };
        let pages = rest.into_inner().unwrap_or_else(PoisonError::into_inner).and_then(Pages::joined);
        if pages.as_deref().map(<[u32]>::as_ptr) != begin {
            return Err(CoreError::Internal("ids are not in the block that was made for them".to_string()));
        }
        let n_ids = ends.last().map_or(0, |&end| end as usize);
        Ok(EncodedBatch { ids: block.filled(pages, n_ids), ends, starts })
    }

    /// Encodes all texts in this thread, into the block, if there is one.
    fn encode_all(
        &self,
        n: usize,
        n_bytes: usize,
        encode: impl Fn(&mut Worker, usize, &mut Piece) -> Result<()>,
        mut block: Option<IdBlock>,
    ) -> Result<EncodedBatch> {
        let ids = block.as_mut().and_then(IdBlock::take).map(Tail::from);
        let mut all = Piece { ids: ids.unwrap_or_default(), ..Piece::default() };
        let mut worker = self.hire(n_bytes)?;
        (0..n).try_for_each(|i| encode(&mut worker, i, &mut all))?;
        self.release(worker);
        let Piece { mut ids, ends, starts, .. } = all;
        let n_ids = ids.n();
        let ids = if let Some(block) = block { block.filled(ids.into_pages(), n_ids) } else { Ids::List(ids.take()) };
        Ok(EncodedBatch { ids, ends, starts })
    }

    fn encode_one(
        &self,
        worker: &mut Worker,
        text: &str,
        wanted: Wanted,
        stop: &Stop,
        piece: &mut Piece,
    ) -> Result<()> {
        if let Some(id) = wanted.begin_id {
            piece.ids.put([id], 1);
            if wanted.starts {
                piece.starts.push(0);
            }
        }
        let from = piece.ids.n();
        self.encode_with(worker, text, stop, &mut piece.ids)?;
        if wanted.starts {
            let mut start = 0;
            for &id in &piece.ids.as_slice()[from..] {
                piece.starts.push(start);
                start += self.decoder.token(id).map_or(0, <[u8]>::len) as u64;
            }
        }
        if let Some(id) = wanted.end_id {
            piece.ids.put([id], 1);
            if wanted.starts {
                piece.starts.push(text.len() as u64);
            }
        }
        piece.ends.push(piece.ids.n() as i64);
        worker.n_bytes += text.len();
        if worker.n_bytes >= CHECKED_BYTES {
            worker.n_bytes = 0;
            stop.check()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::tests::encoder;

    #[test]
    fn ids_stand_in_the_order_of_their_texts_by_whomever_and_wherever_they_were_made() {
        let encoder = encoder(&[], false);
        let texts: Vec<String> = (0..1000).map(|i| ["abc", "", "cab", "bb", "a"][i % 5].repeat(i % 3)).collect();
        let batch = |threads| {
            let wanted = Wanted { begin_id: Some(5), end_id: Some(6), ids: true, starts: true };
            let (text, n_bytes) = (|i: usize| Ok(&*texts[i]), |_| PIECE_BYTES / 4);
            encoder.encode_batch(texts.len(), text, n_bytes, wanted, threads, &Stop::default()).unwrap()
        };
        let expected = batch(1);
        assert_eq!(expected.ids.len(), *expected.ends.last().unwrap() as usize);
        for threads in (2..6).cycle().take(40) {
            let EncodedBatch { ids, ends, starts } = batch(threads);
            assert!((&*ids, ends, starts) == (&*expected.ids, expected.ends.clone(), expected.starts.clone()));
        }
    }
}
