//! The scores that decide which pair training merges first.
//!
//! Invariant: a score is computed exactly, from integers, so that every machine gives the same order.
//! A new score needs a variant of `Score`, a type that implements `Scoring`, and one line in `train`.

use std::cmp::Ordering;

/// The scores by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Score {
    /// How often the pair occurs: byte-pair encoding (Sennrich, Haddow, Birch 2016).
    Count,
    /// count / (left's count × right's count): how much likelier than by chance the pair is (WordPiece; Schuster, Nakajima 2012).
    WordPiece,
    /// count × (length - 1): the number of bytes that would stop being separate tokens.
    BytesSaved,
}

/// The scores by the names that users write.
pub const NAMES: [(&str, Score); 3] =
    [("count", Score::Count), ("wordpiece", Score::WordPiece), ("bytes_saved", Score::BytesSaved)];

/// One side of a pair: its token's count in the text now, and its length.
#[derive(Clone, Copy)]
pub struct Side {
    /// How often the token occurs in the text.
    pub count: u64,
    /// The length of the token in bytes.
    pub n_bytes: usize,
}

/// A way to score pairs.
pub trait Scoring: Sync {
    /// The type of a score.
    type Value: Ord + Copy + Send;
    /// Whether a score depends on the counts of its sides. It may then rise while the pair becomes rarer.
    const BY_SIDES: bool;
    /// Whether the score is the count alone. Pairs with low counts then come last, and may be left out of the index until then.
    const BY_COUNT: bool = false;
    /// The score of a pair that occurs `count` times.
    fn value(count: u64, left: Side, right: Side) -> Self::Value;

    /// The score as a small integer, for scores that are integers and only fall.
    fn level(_: Self::Value) -> Option<usize> {
        None
    }
}

/// Scores by the count of the pair.
pub struct ByCount;

impl Scoring for ByCount {
    type Value = u64;
    const BY_SIDES: bool = false;
    const BY_COUNT: bool = true;
    #[inline]
    fn value(count: u64, _: Side, _: Side) -> u64 {
        count
    }
    #[inline]
    fn level(count: u64) -> Option<usize> {
        usize::try_from(count).ok()
    }
}

/// Scores by the number of bytes saved.
pub struct ByBytesSaved;

impl Scoring for ByBytesSaved {
    type Value = u128;
    const BY_SIDES: bool = false;
    #[inline]
    fn value(count: u64, left: Side, right: Side) -> u128 {
        u128::from(count) * (left.n_bytes + right.n_bytes - 1) as u128
    }
}

/// Scores as WordPiece does.
pub struct ByWordPiece;

impl Scoring for ByWordPiece {
    type Value = Ratio;
    const BY_SIDES: bool = true;
    #[inline]
    fn value(count: u64, left: Side, right: Side) -> Ratio {
        Ratio { part: count, whole: u128::from(left.count) * u128::from(right.count) }
    }
}

/// The fraction part / whole, compared exactly. `whole` is 0 only if `part` is 0.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    part: u64,
    whole: u128,
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.part == 0 || other.part == 0 {
            return (self.part != 0).cmp(&(other.part != 0));
        }
        // Compares whole / part instead: first the integers, then the fractions, whose terms have 64 bits.
        let (part, other_part) = (u128::from(self.part), u128::from(other.part));
        let integers = (other.whole / other_part).cmp(&(self.whole / part));
        integers.then_with(|| ((other.whole % other_part) * part).cmp(&((self.whole % part) * other_part)))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(part: u64, whole: u128) -> Ratio {
        Ratio { part, whole }
    }

    #[test]
    fn ratios_are_compared_exactly() {
        assert!(ratio(1, 2) > ratio(1, 3));
        assert_eq!(ratio(2, 4), ratio(1, 2));
        assert!(ratio(0, 1) < ratio(1, u128::MAX));
        assert_eq!(ratio(0, 1), ratio(0, 7));
        let large = u128::from(u64::MAX) * u128::from(u64::MAX);
        assert!(ratio(u64::MAX, large) > ratio(u64::MAX - 1, large));
        assert!(ratio(3, large) < ratio(3, large - 1));
    }

    #[test]
    fn bytes_saved_counts_all_bytes_but_one() {
        let side = |n_bytes| Side { count: 1, n_bytes };
        assert_eq!(ByBytesSaved::value(5, side(2), side(3)), 20);
    }
}
