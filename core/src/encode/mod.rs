//! Text → ids: added tokens are found, the rest is split, and each pre-token is looked up in the cache or merged.
//!
//! Invariant: the bytes of the ids, joined, are the text. A byte without a token is an error and never left out.
//! Cost: one look-up for a known pre-token, else O(n log n) for its n bytes.

pub mod batch;
pub mod cache;
mod characters;
pub(crate) mod id_block;
pub(crate) mod levels;
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
use crate::encode::id_block::Spare;
use crate::encode::levels::{Sentences, Upper, first_above};
use crate::encode::merge::Scratch;
use crate::encode::merge_table::MergeTable;
pub use crate::encode::merge_table::Rule;
use crate::encode::new_pretoken::NewPretokens;
use crate::encode::pretokens::{TextEncoding, Waiting};
use crate::encode::shared_cache::{Reader, Shared};
use crate::encode::whole_tokens::Whole;
use crate::hash::Seed;
use crate::memory::out_buffer::Tail;
use crate::parallel::interrupt::{CoreError, Result, Stop, lossy};
use crate::split::byte_joins::ByteJoins;
use crate::split::joins::Joins;
use crate::split::pattern::Pattern;
use aho_corasick::{AhoCorasick, MatchKind};
use rustc_hash::FxHashSet;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The most ids for which an idle worker keeps memory.
const IDS_KEPT_MAX: usize = 1 << 20;
/// The default size of the cache.
pub const CACHE_BYTES_MAX: usize = 256 << 20;

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
    /// The level above that of `pattern` and `new`, if merges have two.
    upper: Option<Upper>,
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
    upper: Option<(Upper, levels::Scratch)>,
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
        let mut upper = None;
        if let Some(fallback) = fallback {
            let of_bytes = std::array::from_fn(|byte| byte_ids[byte].unwrap_or(fallback[byte]));
            byte_ids = of_bytes.map(Some);
            merges = merges.of_characters(Characters::new(of_bytes, vocabulary.iter().copied()));
            let made = rules.iter().filter_map(|rule| std::str::from_utf8(decoder.token(rule.token)?).ok());
            pattern = Pattern::of_joins(Joins::new(made, MARK));
        } else if !ignore_merges {
            let token = |id| decoder.token(id).unwrap_or_default();
            let above = first_above(rules, token);
            if above.is_some() || pattern.is_whole() {
                let first = || rules.iter().filter(|rule| above.is_none_or(|above| rule.rank < above));
                let words = Pattern::of_byte_joins(ByteJoins::new(first().map(|rule| token(rule.token))));
                let sentences = std::mem::replace(&mut pattern, words);
                if let Some(above) = above {
                    let first: Vec<Rule> = first().copied().collect();
                    let all = std::mem::replace(&mut merges, merge_table(&decoder, &byte_ids, &first)?);
                    upper = Some(Upper::new(sentences, all, rules, above));
                }
            }
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
            upper,
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
        Ok(Self { added: finder(in_text.iter().map(token).collect::<Result<_>>()?)?, ..self.with_own_cache() })
    }

    /// An encoder of the same vocabulary, which both hold once, with an empty cache.
    pub fn with_own_cache(&self) -> Self {
        Self {
            pattern: self.pattern.clone(),
            new: Arc::clone(&self.new),
            upper: self.upper.clone(),
            added: self.added.clone(),
            decoder: Arc::clone(&self.decoder),
            cache: Shared::new(self.new.whole.len(), CACHE_BYTES_MAX),
            tools: Mutex::default(),
            spare: Spare::default(),
        }
    }

    /// Limits the size of the cache from now on, and empties it.
    pub fn limit_cache(&mut self, bytes_max: usize) {
        self.cache = Shared::new(self.new.whole.len(), bytes_max);
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

    fn hire(&self, n_bytes: usize) -> Result<Worker<'_>> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let new = || Tools {
            pattern: self.pattern.clone(),
            upper: self.upper.clone().map(|upper| (upper, levels::Scratch::default())),
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
        let Worker { tools: Tools { pattern, upper, scratch, waiting, .. }, cache, .. } = worker;
        let mut encoding =
            TextEncoding { new: &self.new, text, start: 0, cache, scratch, stop, ids, waiting, coming: 0 };
        let mut put_text = |encoding: &mut TextEncoding<'_, '_>, part: Range<usize>| match upper {
            None => encoding.put_text(pattern, part),
            Some((upper, scratch)) => {
                let start = part.start;
                let mut sentences = Sentences { upper, words: pattern, encoding, scratch, start };
                upper.pattern.split_into(&text[part], stop, &mut sentences)
            }
        };
        let mut start = 0;
        if let Some((finder, added_ids)) = &self.added {
            for found in finder.find_iter(text) {
                put_text(&mut encoding, start..found.start())?;
                encoding.ids.put([added_ids[found.pattern().as_usize()]], 1);
                start = found.end();
            }
        }
        put_text(&mut encoding, start..text.len())
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
pub(crate) mod tests {
    use super::*;
    use crate::split::named::GPT2;

    const TOKENS: [(u32, &[u8]); 6] = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"ab"), (4, b"bc"), (5, b"abc")];
    const RULES: [(u32, u32, u32, u32); 3] = [(0, 1, 0, 3), (1, 2, 1, 4), (0, 4, 2, 5)];

    fn rules() -> Vec<Rule> {
        RULES.iter().map(|&(left, right, rank, token)| Rule { left, right, rank, token }).collect()
    }

    pub(super) fn encoder(added: &[Added], ignore_merges: bool) -> Encoder {
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
            assert_eq!(encode(&encoder.with_own_cache(), "abcabcab bc abc "), expected);
        }
    }

    fn is_known(encoder: &Encoder, pretoken: &[u8]) -> bool {
        Key::of(pretoken).is_some_and(|key| encoder.cache.reader(0).extend(key, pretoken, &mut Tail::default()))
    }

    #[test]
    fn what_was_met_or_warmed_is_known_in_this_cache_and_the_first_ones_where_there_is_little_room() {
        let mut encoder = encoder(&[], false);
        encode(&encoder, "abcab").unwrap();
        assert!(is_known(&encoder, b"abcab") && !is_known(&encoder, b"abc"));
        assert!(!is_known(&encoder.with_own_cache(), b"abcab"));
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
}
