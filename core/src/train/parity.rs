//! Parity-aware merges: the next merge is the best pair of the group whose text is compressed worst, in the text of all groups.
//!
//! Source: Foroutan et al. 2025, "Parity-Aware Byte-Pair Encoding" (arXiv 2508.04796). Invariants: each group has its own text,
//! pairs and queue, and every merge is made in all of them. Of equal counts, the pair goes first whose left side is the last in
//! the order of `byte_order`, then the one whose right side is; of groups that are equally bad, the first. These are the ties of
//! `tokenizers`' ParityBpeTrainer. A group without a pair that is frequent enough is never chosen again.
//! Cost: as in `train`, for each group that has the pair; to choose a group, O(groups), and with a window O(groups log groups).

use crate::pair::key_of;
use crate::parallel::interrupt::{Result, Stop};
use crate::train::pairs::{Pairs, ids_of};
use crate::train::parity_queue::{Order, ParityQueue};
use crate::train::words::{Found, Joint, Words, WordsBuilder};
use crate::train::{Learned, Merge, Progress, Tokens};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

/// The limits of learning, and how groups take turns.
pub struct ParityGoal<'a> {
    /// The most tokens to learn.
    pub n_tokens_max: u64,
    /// A pair with a lower count in the chosen group is not merged (at least 1).
    pub pair_count_min: u64,
    /// As in `Goal`.
    pub token_bytes_max: usize,
    /// Byte strings that must not become tokens.
    pub forbidden: &'a FxHashSet<Vec<u8>>,
    /// The number of first merges that are chosen by the counts in all groups together.
    pub n_global_merges: u64,
    /// Limits how often a group is chosen; None: the worst group always is.
    pub window: Option<Window>,
}

/// A group is passed over while it has more than `alpha` / groups of the last `n_merges` choices.
pub struct Window {
    /// The number of choices looked at.
    pub n_merges: usize,
    /// 1 allows each group the same share.
    pub alpha: f64,
}

/// The text of a group, and how its compression is measured.
pub struct GroupStart {
    /// The pre-tokens to learn from, with their counts.
    pub words: WordsBuilder,
    /// How its compression is measured.
    pub measure: Measure,
}

/// How the compression of a group is measured.
pub enum Measure {
    /// By the bytes per token of the text to learn from, over this ratio. The group with the lowest value is the worst.
    Ratio(f64),
    /// By the number of tokens of this text. The group with the most is the worst.
    Dev(WordsBuilder),
}

/// Learns merges from groups. The first `n_first` tokens are those of the pre-tokens.
pub fn train_parity(
    groups: Vec<GroupStart>,
    tokens: &[Vec<u8>],
    goal: &ParityGoal,
    progress: &Progress,
    stop: &Stop,
) -> Result<Learned> {
    let tokens = Tokens::new(tokens, tokens.len(), None)?;
    let order = Order::new((0..tokens.len() as u32).map(|id| tokens.of(id)));
    let groups =
        groups.into_iter().map(|start| Group::new(start, &tokens, &order, goal, stop)).collect::<Result<_>>()?;
    let mut trainer = Trainer { goal, groups, tokens, order, chosen: VecDeque::new() };
    let merges = trainer.learn(progress, stop)?;
    let n_text_tokens = trainer.groups.iter().map(|group| group.text.n_tokens).sum();
    let (bytes, n_bytes) = trainer.tokens.into_new();
    Ok(Learned { merges, bytes, n_bytes, n_text_tokens })
}

struct Trainer<'a> {
    goal: &'a ParityGoal<'a>,
    groups: Vec<Group>,
    tokens: Tokens,
    order: Order,
    /// The groups chosen last, at most as many as the window has.
    chosen: VecDeque<usize>,
}

impl Trainer<'_> {
    fn learn(&mut self, progress: &Progress, stop: &Stop) -> Result<Vec<Merge>> {
        let mut merges: Vec<Merge> = Vec::new();
        let mut global = (self.goal.n_global_merges > 0).then(|| self.global_queue());
        let (mut bytes, mut scratch, mut risen) = (Vec::new(), Scratch::default(), Vec::new());
        while self.tokens.n_learned() < self.goal.n_tokens_max {
            stop.check()?;
            if merges.len() as u64 == self.goal.n_global_merges {
                global = None;
            }
            let key = match &mut global {
                Some(queue) => self.best_of_all(queue),
                None => {
                    let Some(worst) = self.worst() else { break };
                    let key = self.best_of(worst);
                    self.groups[worst].is_exhausted = key.is_none();
                    if key.is_none() {
                        continue;
                    }
                    key
                }
            };
            let Some(key) = key else { break };
            let (left, right) = ids_of(key);
            self.tokens.join(left, right, &mut bytes);
            let n_tokens = self.tokens.len();
            let (left_cells, right_cells) = (self.tokens.cells(left), self.tokens.cells(right));
            let token = self.tokens.id_of(&bytes, left_cells + right_cells)?;
            let is_new = token as usize == n_tokens;
            if is_new {
                self.order.add(&bytes);
            }
            let joint = Joint { left, right, token, left_cells, right_cells };
            let count = count_in_all(&self.groups, key);
            risen.clear();
            let Self { groups, tokens, order, goal, .. } = self;
            for group in groups.iter_mut() {
                group.merge(&joint, is_new, tokens, order, goal, stop, &mut scratch)?;
                if global.is_some() {
                    risen.extend_from_slice(&scratch.touched);
                }
            }
            if let Some(queue) = &mut global {
                risen.sort_unstable();
                risen.dedup();
                risen
                    .iter()
                    .for_each(|&key| queue.push(count_in_all(&self.groups, key), key, &self.tokens, &self.order));
            }
            merges.push(Merge { left, right, token, count });
            progress.n_tokens.store(self.tokens.n_learned(), Relaxed);
            progress.n_merges.store(merges.len() as u64, Relaxed);
        }
        Ok(merges)
    }

    /// The pairs of all groups together.
    fn global_queue(&self) -> ParityQueue {
        let mut keys: Vec<u64> =
            self.groups.iter().flat_map(|group| group.text.pairs.iter().map(|(key, _)| key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let entries = keys.into_iter().map(|key| (count_in_all(&self.groups, key), key));
        ParityQueue::new(entries.filter(|&(count, _)| count >= self.goal.pair_count_min), &self.tokens, &self.order)
    }

    fn best_of_all(&self, queue: &mut ParityQueue) -> Option<u64> {
        let Self { groups, tokens, order, goal, .. } = self;
        best(queue, tokens, order, goal, |key| count_in_all(groups, key))
    }

    fn best_of(&mut self, group: usize) -> Option<u64> {
        let Self { groups, tokens, order, goal, .. } = self;
        let Group { text, queue, .. } = &mut groups[group];
        best(queue, tokens, order, goal, |key| text.pairs.count(key).unwrap_or(0))
    }

    /// The group whose turn it is; None if no group has a pair left.
    fn worst(&mut self) -> Option<usize> {
        let open = |&group: &usize| !self.groups[group].is_exhausted;
        let mut candidates: Vec<(usize, f64)> =
            (0..self.groups.len()).filter(open).map(|group| (group, self.groups[group].badness())).collect();
        let Some(window) = &self.goal.window else {
            let worse = |one: (usize, f64), other: (usize, f64)| if other.1 > one.1 { other } else { one };
            return candidates.into_iter().reduce(worse).map(|(group, _)| group);
        };
        candidates.sort_by(|one, other| other.1.total_cmp(&one.1)); // stable: of equal ones, the first stays first
        let share_max = window.alpha / self.groups.len() as f64;
        let is_allowed = |&&(group, _): &&(usize, f64)| {
            let n_chosen = self.chosen.iter().filter(|&&one| one == group).count();
            n_chosen as f64 / window.n_merges as f64 <= share_max
        };
        let (group, _) = *candidates.iter().find(is_allowed).or(candidates.last())?;
        self.chosen.push_back(group);
        if self.chosen.len() > window.n_merges {
            self.chosen.pop_front();
        }
        Some(group)
    }
}

/// The pair to merge next by a queue, whose entries may be out of date. `count`: how often a pair occurs now.
fn best(
    queue: &mut ParityQueue,
    tokens: &Tokens,
    order: &Order,
    goal: &ParityGoal,
    count: impl Fn(u64) -> u64,
) -> Option<u64> {
    let mut bytes = Vec::new();
    loop {
        let (then, key) = queue.pop(tokens, order)?;
        let now = count(key);
        if now < goal.pair_count_min {
            continue;
        }
        if now != then {
            queue.push(now, key, tokens, order);
            continue;
        }
        if !goal.forbidden.is_empty() {
            let (left, right) = ids_of(key);
            tokens.join(left, right, &mut bytes);
            if goal.forbidden.contains(&bytes) {
                continue;
            }
        }
        return Some(key);
    }
}

fn count_in_all(groups: &[Group], key: u64) -> u64 {
    groups.iter().filter_map(|group| group.text.pairs.count(key)).sum()
}

struct Group {
    text: Text,
    queue: ParityQueue,
    /// The number of bytes of the text, and the ratio; None: `dev` is measured.
    ratio: Option<(f64, f64)>,
    dev: Option<Text>,
    is_exhausted: bool,
}

impl Group {
    fn new(start: GroupStart, tokens: &Tokens, order: &Order, goal: &ParityGoal, stop: &Stop) -> Result<Self> {
        let text = Text::new(start.words, tokens, goal, stop)?;
        let (ratio, dev) = match start.measure {
            Measure::Ratio(ratio) => (Some((text.n_tokens as f64, ratio)), None),
            Measure::Dev(words) => (None, Some(Text::new(words, tokens, goal, stop)?)),
        };
        let entries = text.pairs.iter().filter(|&(_, count)| count >= goal.pair_count_min);
        let queue = ParityQueue::new(entries.map(|(key, count)| (count, key)), tokens, order);
        Ok(Self { is_exhausted: text.n_tokens == 0, text, queue, ratio, dev })
    }

    /// The larger, the worse the group is compressed.
    fn badness(&self) -> f64 {
        match (self.ratio, &self.dev) {
            (Some((n_bytes, ratio)), _) => -(n_bytes / self.text.n_tokens as f64 / ratio),
            (None, dev) => dev.as_ref().map_or(0.0, |dev| dev.n_tokens as f64),
        }
    }

    /// Makes a merge in the group's texts. `scratch.touched` then has the pairs whose count has risen.
    #[allow(clippy::too_many_arguments)] // the parts of the trainer that are borrowed beside the groups
    fn merge(
        &mut self,
        joint: &Joint,
        is_new: bool,
        tokens: &Tokens,
        order: &Order,
        goal: &ParityGoal,
        stop: &Stop,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if let Some(dev) = &mut self.dev {
            dev.merge(joint, is_new, tokens, goal, stop, scratch)?;
        }
        self.text.merge(joint, is_new, tokens, goal, stop, scratch)?;
        let Self { text, queue, .. } = self;
        let risen = scratch.touched.iter().filter_map(|&key| text.pairs.count(key).map(|count| (count, key)));
        for (count, key) in risen.filter(|&(count, _)| count >= goal.pair_count_min) {
            queue.push(count, key, tokens, order);
        }
        Ok(())
    }
}

/// What a merge needs for a moment.
#[derive(Default)]
struct Scratch {
    positions: Vec<u32>,
    found: Found,
    touched: Vec<u64>,
}

/// Pre-tokens in which pairs are merged.
struct Text {
    words: Words,
    pairs: Pairs,
    n_placed: usize,
    /// The number of tokens now.
    n_tokens: u64,
}

impl Text {
    fn new(words: WordsBuilder, tokens: &Tokens, goal: &ParityGoal, stop: &Stop) -> Result<Self> {
        let words = words.build()?;
        let cells = |id| tokens.cells(id);
        let keep = |left, right| tokens.is_kept(left, right, goal.token_bytes_max);
        let (pairs, n_placed) = Pairs::of(&words, cells, 1, keep, || stop.check())?;
        let n_tokens = words.token_counts(tokens.len(), cells).iter().sum();
        Ok(Self { pairs, words, n_placed, n_tokens })
    }

    fn merge(
        &mut self,
        joint: &Joint,
        is_new: bool,
        tokens: &Tokens,
        goal: &ParityGoal,
        stop: &Stop,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Scratch { positions, found, touched } = scratch;
        touched.clear();
        self.pairs.take(key_of(joint.left, joint.right), positions);
        if positions.is_empty() {
            return Ok(());
        }
        let cells = |id| tokens.cells(id);
        self.words.merge(positions, joint, cells, || stop.check(), found)?;
        let keep = |left, right| tokens.is_kept(left, right, goal.token_bytes_max);
        self.pairs.change(joint, is_new, found, keep, touched)?;
        self.n_placed -= found.n_places;
        self.n_tokens -= found.count;
        self.pairs.compact(&self.words, self.n_placed, cells, || stop.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::byte_order;
    use rustc_hash::FxBuildHasher;

    fn id_of(byte: u8) -> u32 {
        byte_order().iter().position(|&one| one == byte).unwrap() as u32
    }

    fn words(all: &[(&str, u64)]) -> WordsBuilder {
        let mut words = WordsBuilder::default();
        for (text, count) in all {
            words.add(text.bytes().map(id_of).collect::<Vec<_>>().into_iter(), *count, |_| 1).unwrap();
        }
        words
    }

    fn by_ratio(all: &[(&str, u64)], ratio: f64) -> GroupStart {
        GroupStart { words: words(all), measure: Measure::Ratio(ratio) }
    }

    fn by_dev(all: &[(&str, u64)], dev: &[(&str, u64)]) -> GroupStart {
        GroupStart { words: words(all), measure: Measure::Dev(words(dev)) }
    }

    const GOAL: ParityGoal = ParityGoal {
        n_tokens_max: 100,
        pair_count_min: 1,
        token_bytes_max: usize::MAX,
        forbidden: &FxHashSet::with_hasher(FxBuildHasher),
        n_global_merges: 0,
        window: None,
    };

    /// The new tokens, in order.
    fn learned(groups: Vec<GroupStart>, goal: &ParityGoal) -> Vec<String> {
        let tokens: Vec<Vec<u8>> = byte_order().iter().map(|&byte| vec![byte]).collect();
        let found = train_parity(groups, &tokens, goal, &Progress::default(), &Stop::default()).unwrap();
        let mut rest = &found.bytes[..];
        let token = |&n: &u32| {
            let (token, after) = rest.split_at(n as usize);
            rest = after;
            String::from_utf8_lossy(token).into_owned()
        };
        found.n_bytes.iter().map(token).collect()
    }

    #[test]
    fn groups_take_turns_and_the_last_pair_by_text_goes_first() {
        let groups = || vec![by_ratio(&[("kkmm", 10)], 1.0), by_ratio(&[("ppqq", 10)], 1.0)];
        assert_eq!(learned(groups(), &GOAL), ["mm", "qq", "kmm", "pqq", "kkmm", "ppqq"]);
        assert_eq!(learned(groups(), &ParityGoal { n_tokens_max: 2, ..GOAL }), ["mm", "qq"]);
    }

    #[test]
    fn a_higher_ratio_gives_a_group_more_merges() {
        let groups = |ratio| vec![by_ratio(&[("kkmm", 10)], 1.0), by_ratio(&[("ppqq", 10)], ratio)];
        assert_eq!(learned(groups(3.0), &GOAL)[..3], ["qq", "pqq", "ppqq"]);
    }

    #[test]
    fn the_group_with_the_most_tokens_of_the_dev_text_goes_next_however_much_it_has_to_learn_from() {
        let groups = vec![by_dev(&[("km", 99)], &[("km", 1)]), by_dev(&[("pq", 2)], &[("pq", 5)])];
        assert_eq!(learned(groups, &GOAL), ["pq", "km"]);
    }

    #[test]
    fn a_group_that_has_no_pair_left_is_passed_over() {
        let groups = vec![by_dev(&[("km", 1)], &[("zz", 99)]), by_dev(&[("pqr", 5)], &[("pqr", 1)])];
        assert_eq!(learned(groups, &GOAL), ["km", "qr", "pqr"]);
        let groups = vec![by_dev(&[], &[("zz", 99)]), by_dev(&[("pqr", 5), ("km", 1)], &[("pqr", 1)])];
        assert_eq!(learned(groups, &ParityGoal { pair_count_min: 2, ..GOAL }), ["qr", "pqr"]);
    }

    #[test]
    fn a_group_that_had_too_many_of_the_last_turns_is_passed_over() {
        let groups = || vec![by_dev(&[("kkmm", 9)], &[("kkmm", 99)]), by_dev(&[("ppqq", 9)], &[("ppqq", 1)])];
        assert_eq!(learned(groups(), &GOAL), ["mm", "kmm", "kkmm", "qq", "pqq", "ppqq"]);
        let window = Some(Window { n_merges: 2, alpha: 1.0 });
        let goal = ParityGoal { window, ..GOAL };
        assert_eq!(learned(groups(), &goal), ["mm", "kmm", "qq", "kkmm", "pqq", "ppqq"]);
    }

    #[test]
    fn the_first_merges_are_those_of_all_groups_together() {
        let groups = || vec![by_ratio(&[("km", 5), ("pq", 4)], 1.0), by_ratio(&[("km", 1), ("pq", 4)], 1.0)];
        assert_eq!(learned(groups(), &GOAL), ["km", "pq"]);
        assert_eq!(learned(groups(), &ParityGoal { n_global_merges: 1, ..GOAL }), ["pq", "km"]);
    }

    #[test]
    fn a_forbidden_token_is_never_made() {
        let forbidden = FxHashSet::from_iter([b"mm".to_vec()]);
        let groups = vec![by_ratio(&[("kkmm", 10)], 1.0)];
        let goal = ParityGoal { forbidden: &forbidden, ..GOAL };
        assert_eq!(learned(groups, &goal), ["km", "kmm", "kkmm"]);
    }
}
