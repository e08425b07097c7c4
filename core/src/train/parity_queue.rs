//! A queue of pairs in the order of `tokenizers`' ParityBpeTrainer: the highest count first, then the pair that is last by text.
//!
//! The order by text compares the left sides, then the right sides, byte for byte in the order of `byte_order`, in which
//! tokenizer.json's characters for bytes stand. Invariant: a binary heap; every entry comes before its two children, at 2i + 1 and
//! 2i + 2. Cost: O(log n) to push or pop.

use crate::train::pairs::ids_of;
use crate::train::{Tokens, byte_order};
use std::cmp::Ordering;

/// The beginning of every token as a number that orders tokens by text.
pub struct Order {
    /// For each byte, its place in `byte_order`.
    places: [u8; 256],
    /// For each token, the places of its first eight bytes, with zeros behind a shorter one.
    beginnings: Vec<u64>,
}

impl Order {
    /// The order of some tokens, by id.
    pub fn new<'t>(tokens: impl Iterator<Item = &'t [u8]>) -> Self {
        let mut places = [0; 256];
        byte_order().iter().zip(0..=255).for_each(|(&byte, place)| places[byte as usize] = place);
        let mut order = Self { places, beginnings: Vec::new() };
        tokens.for_each(|token| order.add(token));
        order
    }

    /// Adds the next token.
    pub fn add(&mut self, token: &[u8]) {
        let mut beginning = [0; 8];
        beginning.iter_mut().zip(token).for_each(|(place, &byte)| *place = self.places[byte as usize]);
        self.beginnings.push(u64::from_be_bytes(beginning));
    }

    fn compare(&self, one: u32, other: u32, tokens: &Tokens) -> Ordering {
        if one == other {
            return Ordering::Equal;
        }
        let by_text = || {
            let places = |id| tokens.of(id).iter().map(|&byte| self.places[byte as usize]);
            places(one).cmp(places(other))
        };
        self.beginnings[one as usize].cmp(&self.beginnings[other as usize]).then_with(by_text)
    }
}

/// Pairs by count and text. Entries may be out of date.
pub struct ParityQueue {
    entries: Vec<(u64, u64)>,
}

impl ParityQueue {
    /// The queue of some counts and pairs.
    pub(super) fn new(entries: impl Iterator<Item = (u64, u64)>, tokens: &Tokens, order: &Order) -> Self {
        let mut queue = Self { entries: entries.collect() };
        (0..queue.entries.len() / 2).rev().for_each(|at| queue.sink(at, tokens, order));
        queue
    }

    /// Adds a pair with its count.
    pub(super) fn push(&mut self, count: u64, key: u64, tokens: &Tokens, order: &Order) {
        let mut at = self.entries.len();
        self.entries.push((count, key));
        while at > 0 && self.is_before(at, (at - 1) / 2, tokens, order) {
            self.entries.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Takes out the first entry: its count and its pair.
    pub(super) fn pop(&mut self, tokens: &Tokens, order: &Order) -> Option<(u64, u64)> {
        let last = self.entries.len().checked_sub(1)?;
        self.entries.swap(0, last);
        let first = self.entries.pop();
        self.sink(0, tokens, order);
        first
    }

    fn sink(&mut self, mut at: usize, tokens: &Tokens, order: &Order) {
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.entries.len() && self.is_before(child, first, tokens, order) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.entries.swap(at, first);
            at = first;
        }
    }

    fn is_before(&self, one: usize, other: usize, tokens: &Tokens, order: &Order) -> bool {
        let ((count, key), (other_count, other_key)) = (self.entries[one], self.entries[other]);
        if count != other_count {
            return count > other_count;
        }
        let ((left, right), (other_left, other_right)) = (ids_of(key), ids_of(other_key));
        let by_text = order.compare(left, other_left, tokens).then_with(|| order.compare(right, other_right, tokens));
        by_text == Ordering::Greater
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::key_of;

    #[test]
    fn the_highest_count_comes_first_and_of_equal_ones_the_last_by_text() {
        let long = |end: &str| format!("abcdefgh{end}").into_bytes();
        let texts = [b"a".to_vec(), b"b".to_vec(), b" ".to_vec(), b"a!".to_vec(), long("x"), long("y"), long("")];
        let tokens = Tokens::new(&texts, texts.len(), None).unwrap();
        let order = Order::new(texts.iter().map(Vec::as_slice));
        // A space is last, since its character in tokenizer.json is Ġ.
        let by_text = [(2, 0), (1, 0), (5, 0), (4, 0), (6, 0), (3, 0), (0, 2), (0, 3), (0, 0)];
        let mut queue =
            ParityQueue::new(by_text[4..].iter().map(|&(left, right)| (7, key_of(left, right))), &tokens, &order);
        by_text[..4].iter().for_each(|&(left, right)| queue.push(7, key_of(left, right), &tokens, &order));
        queue.push(9, key_of(0, 1), &tokens, &order);
        queue.push(1, key_of(2, 2), &tokens, &order);
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop(&tokens, &order)).map(|(_, key)| ids_of(key)).collect();
        assert_eq!(popped[0], (0, 1));
        assert_eq!(popped[1..10], by_text);
        assert_eq!(popped[10..], [(2, 2)]);
    }
}
