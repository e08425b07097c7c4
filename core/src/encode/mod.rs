//! Text → ids: added tokens are found, the rest is split, and each pre-token is looked up in the cache or merged.
//!
//! Invariant: the bytes of the ids, joined, are the text. A byte without a token is an error and never left out.
//! Cost: one look-up for a known pre-token, else O(n log n) for its n bytes.

pub mod cache;
mod characters;
pub(crate) mod id_block;
pub(crate) mod long_pretoken;
pub mod merge;
mod merge_table;
mod new_pretoken;
pub(crate) mod premerged;
pub(crate) mod pretokens;
pub mod rank_queue;
pub(crate) mod shared_cache;
pub(crate) mod whole_tokens;

use crate::decode::Decoder;
use crate::encode::cache::{Key, SHORT_BYTES_MAX};
use crate::encode::characters::{Characters, MARK};
use crate::encode::id_block::{IdBlock, Ids, Spare};
use crate::encode::merge::Scratch;
use crate::encode::merge_table::MergeTable;
use crate::encode::new_pretoken::NewPretokens;
use crate::encode::pretokens::{AT_ONCE_IDS, TextEncoding, Waiting};
use crate::encode::shared_cache::{Reader, Shared};
use crate::encode::whole_tokens::Whole;
use crate::hash::Seed;
use crate::memory::out_buffer::Tail;
use crate::memory::pages::Pages;
use crate::parallel::in_order::{Turn, in_order, pieces};
use crate::parallel::interrupt::{CoreError, Result, Stop, lossy};
use crate::split::joins::Joins;
use crate::split::pattern::Pattern;
use aho_corasick::{AhoCorasick, MatchKind};
use rustc_hash::FxHashSet;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The text that a thread encodes at a time. Its ids stay in the core's own cache.
const PIECE_BYTES: usize = 1 << 17;
/// The number of bytes encoded between two checks of `stop`.
const CHECKED_BYTES: usize = 1 << 16;
/// Spare room at the end of a batch, because ids are written in blocks.
const ROOM_IDS: usize = 1 << 10;
const _: () = assert!(ROOM_IDS >= AT_ONCE_IDS, "a piece in its place must not outgrow it");
/// The most ids for which an idle worker keeps memory.
const IDS_KEPT_MAX: usize = 1 << 20;
/// The default size of the cache.
pub const CACHE_BYTES_MAX: usize = 256 << 20;

/// A merge of the vocabulary. The lowest rank is merged first.
pub struct Rule {
    /// The id of the left side.
    pub left: u32,
    /// The id of the right side.
    pub right: u32,
    /// The place of the merge in their order. The lowest goes first.
    pub rank: u32,
    /// The id of the token that the two become.
    pub token: u32,
}

/// A token that merges do not make. With `in_text`, its text becomes this token wherever it occurs.
pub struct Added<'a> {
    /// The token's id.
    pub id: u32,
    /// The token's text.
    pub bytes: &'a [u8],
    /// Whether it is found in text.
    pub in_text: bool,
}

/// A vocabulary, ready to encode and decode.
pub struct Encoder {
    pattern: Pattern,
    new: Arc<NewPretokens>,
    added: Option<(AhoCorasick, Vec<u32>)>,
    /// Decodes ids to bytes.
    pub decoder: Arc<Decoder>,
    cache: Shared,
    /// The tools of threads that have finished, for the next threads.
    tools: Mutex<Vec<Tools>>,
    /// The memory kept for the ids of the next batch.
    spare: Spare,
}

/// The data that each thread needs for itself.
struct Tools {
    pattern: Pattern,
    scratch: Scratch,
    /// Empty between two texts. After an error in a text the tools are not used again.
    waiting: Box<[Waiting; 2]>,
    /// Memory for the ids of a piece.
    list: Tail<u32>,
}

/// A thread that encodes.
struct Worker<'e> {
    tools: Tools,
    cache: Reader<'e>,
    /// Bytes encoded since the last check of `stop`.
    n_bytes: usize,
}

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
pub struct Batch {
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
}

impl Encoder {
    /// An encoder. Checks that every id and token occurs once, and that every merge makes the bytes of its token.
    ///
    /// With `fallback`, symbols are characters: `fallback` is the token of each byte of a character that has none itself. Text is
    /// then cut where no merge can cross, in place of `pattern`, and `added` may have tokens of the vocabulary.
    pub fn new(
        mut pattern: Pattern,
        vocabulary: &[(u32, &[u8])],
        rules: &[Rule],
        added: &[Added],
        ignore_merges: bool,
        fallback: Option<&[u32; 256]>,
        stop: &Stop,
    ) -> Result<Self> {
        let known: FxHashSet<u32> = fallback.iter().flat_map(|_| vocabulary.iter().map(|one| one.0)).collect();
        let others = added.iter().filter(|one| !known.contains(&one.id)).map(|one| (one.id, one.bytes));
        let tokens: Vec<_> = vocabulary.iter().copied().chain(others).collect();
        let decoder = Decoder::new(tokens.into_iter())?;
        let mut ids: HashMap<&[u8], u32, Seed> = HashMap::default();
        let mut byte_ids = [None; 256];
        for &(id, bytes) in vocabulary {
            if let Some(other) = ids.insert(bytes, id) {
                return Err(CoreError::Tokenizer(format!(
                    "the ids {other} and {id} stand for the same token {:?}.",
                    lossy(bytes)
                )));
            }
            if let [byte] = bytes {
                byte_ids[*byte as usize] = Some(id);
            }
        }
        let mut merges = merge_table(&decoder, &byte_ids, rules)?;
        if let Some(fallback) = fallback {
            let of_bytes = std::array::from_fn(|byte| byte_ids[byte].unwrap_or(fallback[byte]));
            byte_ids = of_bytes.map(Some);
            merges = merges.of_characters(Characters::new(of_bytes, vocabulary.iter().copied()));
            let made = rules.iter().filter_map(|rule| std::str::from_utf8(decoder.token(rule.token)?).ok());
            pattern = Pattern::of_joins(Joins::new(made, MARK));
        }
        let n_tokens = ids.len();
        let mut new = NewPretokens { merges, byte_ids, whole: Whole::default() };
        let (mut whole, mut scratch, mut out) = (Whole::default(), Scratch::default(), Tail::default());
        for (i, (bytes, id)) in ids.into_iter().enumerate() {
            if i % 1024 == 0 {
                stop.check()?;
            }
            out.clear(IDS_KEPT_MAX);
            if ignore_merges || new.merge(bytes, &mut scratch, stop, &mut out)? == Ok(()) && out.as_slice() == [id] {
                whole.insert(bytes, id);
            }
        }
        new.whole = whole;
        let in_text = added.iter().filter(|one| one.in_text).map(|one| (one.id, one.bytes));
        Ok(Self {
            pattern,
            new: Arc::new(new),
            added: finder(in_text.collect())?,
            decoder: Arc::new(decoder),
            cache: Shared::new(n_tokens, CACHE_BYTES_MAX),
            tools: Mutex::default(),
            spare: Spare::default(),
        })
    }

    /// An encoder of the same vocabulary, which both hold once, that finds the tokens with these ids in text, and no others. Its
    /// cache is its own.
    pub fn finding(&self, in_text: &[u32]) -> Result<Self> {
        let token = |&id: &u32| {
            let unknown = || CoreError::Tokenizer(format!("id {id} is not in the vocabulary."));
            Ok((id, self.decoder.token(id).ok_or_else(unknown)?))
        };
        Ok(Self {
            pattern: self.pattern.clone(),
            new: Arc::clone(&self.new),
            added: finder(in_text.iter().map(token).collect::<Result<_>>()?)?,
            decoder: Arc::clone(&self.decoder),
            cache: Shared::new(self.new.whole.len(), CACHE_BYTES_MAX),
            tools: Mutex::default(),
            spare: Spare::default(),
        })
    }

    /// Limits the size of the cache from now on, and empties it.
    pub fn limit_cache(&mut self, bytes_max: usize) {
        self.cache = Shared::new(self.new.whole.len(), bytes_max);
    }

    /// Empties the cache, warmed entries included, and frees memory.
    pub fn forget(&self) {
        self.cache.forget();
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Warms the cache with these pre-tokens, the most frequent first.
    pub fn warm(&self, pretokens: &[&[u8]], stop: &Stop) -> Result<()> {
        let (mut scratch, mut out, mut cache) = (Scratch::default(), Tail::default(), self.cache.reader(0));
        // The most frequent ones are added last, because they evict others.
        for (i, bytes) in pretokens.iter().rev().enumerate() {
            if i % 1024 == 0 {
                stop.check()?;
            }
            if bytes.is_empty() || bytes.len() > SHORT_BYTES_MAX {
                continue;
            }
            out.clear(IDS_KEPT_MAX);
            let key = Key::of(bytes);
            if self.new.put(key, bytes, &mut scratch, stop, &mut out)?.is_ok() {
                key.into_iter().for_each(|key| cache.insert(key, bytes, out.as_slice()));
            }
        }
        Ok(())
    }

    /// The ids of a text.
    pub fn encode(&self, text: &str, stop: &Stop) -> Result<Vec<u32>> {
        let (mut worker, mut ids) = (self.hire(text.len())?, Tail::default());
        self.encode_with(&mut worker, text, stop, &mut ids)?;
        self.release(worker);
        Ok(ids.take())
    }

    /// Encodes the texts `text(i)` of `n_bytes(i)` bytes for i in 0..n, in `threads` threads.
    pub fn encode_batch<'t>(
        &self,
        n: usize,
        text: impl Fn(usize) -> Result<&'t str> + Sync,
        n_bytes: impl Fn(usize) -> usize,
        wanted: Wanted,
        threads: usize,
        stop: &Stop,
    ) -> Result<Batch> {
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
            let ids = block.as_mut().and_then(IdBlock::take).map(Tail::from);
            let mut all = Piece { ids: ids.unwrap_or_default(), ..Piece::default() };
            let mut worker = self.hire(n_bytes_of_all)?;
            (0..n).try_for_each(|i| encode(&mut worker, i, &mut all))?;
            self.release(worker);
            let Piece { mut ids, ends, starts, .. } = all;
            let n_ids = ids.n();
            let ids =
                if let Some(block) = block { block.filled(ids.into_pages(), n_ids) } else { Ids::List(ids.take()) };
            return Ok(Batch { ids, ends, starts });
        }
        let mut all = Batch::default();
        let (rest, mut list) = (block.as_mut().and_then(IdBlock::take), Vec::new());
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
        let claim = |piece: &mut Piece| {
            let before = all.ends.last().copied().unwrap_or_default();
            all.ends.extend(piece.ends.drain(..).map(|end| end + before));
            all.starts.append(&mut piece.starts);
            let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(pages) = piece.leave() {
                *rest = Some(pages);
                return None;
            }
            if let Some(rest) = &mut *rest {
                return Some(rest.split_to(piece.ids.n()));
            }
            match wanted.ids {
                true if list.is_empty() => list = piece.ids.take(),
                true => list.extend_from_slice(piece.ids.as_slice()),
                false => (),
            }
            None
        };
        let put = |place: Option<Pages<u32>>, piece: &mut Piece| {
            if let Some(mut place) = place {
                place.copy_from_slice(piece.ids.as_slice());
            }
            piece.ids.clear(IDS_KEPT_MAX);
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
        in_order(&pieces, threads, stop, (hire, release), work, claim, put)?;
        let n_ids = all.ends.last().map_or(0, |&end| end as usize);
        all.ids = Ids::List(list);
        if let Some(block) = block {
            let pages = rest.into_inner().unwrap_or_else(PoisonError::into_inner).and_then(Pages::joined);
            if pages.as_deref().map(<[u32]>::as_ptr) != begin {
                return Err(CoreError::Internal("ids are not in the block that was made for them".to_string()));
            }
            all.ids = block.filled(pages, n_ids);
        }
        Ok(all)
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

    fn hire(&self, n_bytes: usize) -> Result<Worker<'_>> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let new = || Tools {
            pattern: self.pattern.clone(),
            scratch: Scratch::default(),
            waiting: Box::default(),
            list: Tail::default(),
        };
        Ok(Worker { tools: tools.unwrap_or_else(new), cache: self.cache.reader(n_bytes), n_bytes: 0 })
    }

    fn release(&self, worker: Worker) {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).push(worker.tools);
    }

    fn encode_with(&self, worker: &mut Worker, text: &str, stop: &Stop, ids: &mut Tail<u32>) -> Result<()> {
        let Worker { tools: Tools { pattern, scratch, waiting, .. }, cache, .. } = worker;
        let mut encoding =
            TextEncoding { new: &self.new, text, start: 0, cache, scratch, stop, ids, waiting, coming: 0 };
        let mut start = 0;
        if let Some((finder, added_ids)) = &self.added {
            for found in finder.find_iter(text) {
                encoding.put_text(pattern, start..found.start())?;
                encoding.ids.put([added_ids[found.pattern().as_usize()]], 1);
                start = found.end();
            }
        }
        encoding.put_text(pattern, start..text.len())
    }
}

fn merge_table(decoder: &Decoder, byte_ids: &[Option<u32>; 256], rules: &[Rule]) -> Result<MergeTable> {
    for (i, rule) in rules.iter().enumerate() {
        let known = |id: u32| {
            decoder
                .token(id)
                .ok_or_else(|| CoreError::Tokenizer(format!("merge {i}: id {id} is not in the vocabulary.")))
        };
        let joined = [known(rule.left)?, known(rule.right)?].concat();
        if known(rule.token)? != joined {
            return Err(CoreError::Tokenizer(format!(
                "merge {i}: {:?} is not the token with id {}, into which it would be merged.",
                lossy(&joined),
                rule.token
            )));
        }
    }
    let merges = rules.iter().map(|rule| (rule.left, rule.right, rule.rank, rule.token));
    MergeTable::new(byte_ids, |id| decoder.token(id).unwrap_or_default(), merges).map_err(|i| {
        let token = decoder.token(rules[i].token).unwrap_or_default();
        CoreError::Tokenizer(format!("merge {i}: the pair {:?} is merged twice.", lossy(token)))
    })
}

/// What finds these tokens in text, the longest first, with their ids.
fn finder(in_text: Vec<(u32, &[u8])>) -> Result<Option<(AhoCorasick, Vec<u32>)>> {
    if in_text.is_empty() {
        return Ok(None);
    }
    let finder = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(in_text.iter().map(|one| one.1))
        .map_err(|error| CoreError::Tokenizer(format!("the added tokens cannot be searched for: {error}.")))?;
    Ok(Some((finder, in_text.into_iter().map(|one| one.0).collect())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::named::GPT2;

    const TOKENS: [(u32, &[u8]); 6] = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"ab"), (4, b"bc"), (5, b"abc")];
    const RULES: [(u32, u32, u32, u32); 3] = [(0, 1, 0, 3), (1, 2, 1, 4), (0, 4, 2, 5)];

    fn rules() -> Vec<Rule> {
        RULES.iter().map(|&(left, right, rank, token)| Rule { left, right, rank, token }).collect()
    }

    fn encoder(added: &[Added], ignore_merges: bool) -> Encoder {
        Encoder::new(
            Pattern::new(&["[a-c]+"]).unwrap(),
            &TOKENS,
            &rules(),
            added,
            ignore_merges,
            None,
            &Stop::default(),
        )
        .unwrap()
    }

    fn encode(encoder: &Encoder, text: &str) -> Result<Vec<u32>> {
        encoder.encode(text, &Stop::default())
    }

    #[test]
    fn what_is_warmed_and_a_cache_without_room_change_no_ids() {
        for ignore_merges in [false, true] {
            let mut encoder = encoder(&[], ignore_merges);
            let expected = encode(&encoder, "abcabcab bc abc ");
            encoder.limit_cache(0);
            assert_eq!(encode(&encoder, "abcabcab bc abc "), expected);
            encoder.warm(&[b"abcabcab", b"abc", b"", b"not a pre-token", b"bc"], &Stop::default()).unwrap();
            assert_eq!(encode(&encoder, "abcabcab bc abc "), expected);
            encoder.forget();
            assert!(encoder.tools.lock().unwrap().is_empty());
            assert_eq!(encode(&encoder, "abcabcab bc abc "), expected);
        }
    }

    fn is_known(encoder: &Encoder, pretoken: &[u8]) -> bool {
        Key::of(pretoken).is_some_and(|key| encoder.cache.reader(0).extend(key, pretoken, &mut Tail::default()))
    }

    #[test]
    fn what_was_met_or_warmed_is_known_until_it_is_forgotten_and_the_first_ones_where_there_is_little_room() {
        let mut encoder = encoder(&[], false);
        encode(&encoder, "abcab").unwrap();
        assert!(is_known(&encoder, b"abcab") && !is_known(&encoder, b"abc"));
        encoder.forget();
        assert!(!is_known(&encoder, b"abcab"));
        encoder.limit_cache(1 << 12);
        let words: Vec<Vec<u8>> =
            (0..3_u32.pow(7)).map(|i| (0..7).map(|k| b"abc"[(i / 3_u32.pow(k) % 3) as usize]).collect()).collect();
        let pretokens: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        encoder.warm(&pretokens, &Stop::default()).unwrap();
        let n_known = |some: &[&[u8]]| some.iter().filter(|one| is_known(&encoder, one)).count();
        assert!(n_known(&pretokens[..20]) > 15 && n_known(&pretokens[1000..]) == 0);
    }

    #[test]
    fn added_tokens_are_found_longest_first_and_only_when_they_may_be_in_text() {
        let added = [
            Added { id: 7, bytes: b"<x>", in_text: true },
            Added { id: 8, bytes: b"<x><x>", in_text: true },
            Added { id: 9, bytes: b"abc", in_text: false },
        ];
        let encoder = encoder(&added, false);
        assert_eq!(encode(&encoder, "a<x><x><x>abc"), Ok(vec![0, 8, 7, 3, 2]));
        assert_eq!(encode(&encoder.finding(&[9, 7]).unwrap(), "a<x>abc<x>b"), Ok(vec![0, 7, 9, 7, 1]));
        let bare = encoder.finding(&[]).unwrap();
        assert_eq!((encode(&bare, "abc"), bare.decoder.token(8)), (Ok(vec![3, 2]), Some(&b"<x><x>"[..])));
        assert!(matches!(encoder.finding(&[99]), Err(CoreError::Tokenizer(text)) if text.contains("id 99")));
    }

    /// An encoder with a token for each byte and no merges, so that the ids are the bytes.
    #[test]
    fn pretokens_of_all_lengths_stay_in_their_order() {
        let bytes: Vec<u8> = (0..=255).collect();
        let vocabulary: Vec<(u32, &[u8])> =
            bytes.iter().map(|&byte| (byte.into(), &bytes[byte.into()..][..1])).collect();
        let one_by_one = [r"\s?\S+"]; // a pattern without a scanner
        let encoders = [[GPT2], one_by_one].map(|steps| {
            let added = Added { id: 256, bytes: b"<x>", in_text: true };
            Encoder::new(Pattern::new(&steps).unwrap(), &vocabulary, &[], &[added], false, None, &Stop::default())
                .unwrap()
        });
        let words = |n: usize| (0..n).map(|i| format!(" {}", (i % 26).to_string().repeat(i % 13))).collect::<String>();
        for n_before in [0, 1, 60, 63, 64, 65, 127, 128, 300] {
            for length in [1, 15, 16, 255, 256, 257, 300, 5000] {
                let text = format!("{}<x>{}{}{}", words(n_before), words(n_before), "a".repeat(length), words(100));
                let expected: Vec<u32> = text
                    .replace("<x>", "\u{1}")
                    .bytes()
                    .map(|byte| if byte == 1 { 256 } else { byte.into() })
                    .collect();
                for encoder in encoders.iter().chain(&encoders) {
                    assert_eq!(encode(encoder, &text).unwrap(), expected, "{n_before}, {length}");
                }
            }
        }
    }

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
            let Batch { ids, ends, starts } = batch(threads);
            assert!((&*ids, ends, starts) == (&*expected.ids, expected.ends.clone(), expected.starts.clone()));
        }
    }
}
