//! Text → pre-tokens by a split pattern. Each step is a regex that cuts every piece into its matches and the gaps between them.
//!
//! Invariant: the pieces of a text, joined, are the text, and no piece is empty. This is `tokenizers`' Sequence of Splits with
//! behaviour Isolated: a later step sees each piece as a text of its own, so its look-ahead ends with the piece.
//! Cost: O(n) for patterns without look-around, and for the white-space idiom below. Others cost what fancy-regex takes, within
//! its limits.

use crate::parallel::interrupt::{CoreError, Result, Stop};
use crate::split::byte_joins::ByteJoins;
use crate::split::joins::Joins;
use crate::split::scan::Scanner;
use crate::split::sink::{Each, Sink};
use fancy_regex::{Assertion, Expr, RegexBuilder};
use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

/// The number of matches between two checks whether to stop. Each may read the text to its end. With 8, a plain regex took 1.08
/// times as long.
const FOUND: u32 = 32;

/// A compiled split pattern. Each thread needs its own clone, because a clone has its own scratch space.
#[derive(Clone)]
pub struct Pattern(Engine);

#[derive(Clone)]
enum Engine {
    Scanner(Scanner),
    Joins(Joins),
    ByteJoins(ByteJoins),
    Regex(Vec<Step>),
}

#[derive(Clone)]
enum Step {
    /// A regex without look-around.
    Linear(Regex),
    /// `first|\s+(?!\S)|\s+`, run as `first|\s+`. `first` alone tells which side of the `|` matched a run of white space.
    Space { all: Regex, first: Regex },
    /// A regex with look-around or possessive quantifiers.
    Backtracking(Box<fancy_regex::Regex>),
}

impl Pattern {
    /// Compiles the steps. With none, each text is one piece.
    pub fn new<S: AsRef<str>>(steps: &[S]) -> Result<Self> {
        let steps: Vec<&str> = steps.iter().map(AsRef::as_ref).collect();
        if let Some(scanner) = Scanner::of(&steps) {
            return Ok(Self(Engine::Scanner(scanner)));
        }
        Self::with_regex(&steps)
    }

    /// Cuts where no merge can cross, in place of a pattern.
    pub(crate) fn of_joins(joins: Joins) -> Self {
        Self(Engine::Joins(joins))
    }

    /// Cuts between bytes where no merge can cross.
    pub(crate) fn of_byte_joins(joins: ByteJoins) -> Self {
        Self(Engine::ByteJoins(joins))
    }

    /// Whether each text is one piece.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(&self.0, Engine::Regex(steps) if steps.is_empty())
    }

    fn with_regex(steps: &[&str]) -> Result<Self> {
        steps.iter().map(|step| Step::new(step)).collect::<Result<_>>().map(Engine::Regex).map(Self)
    }

    /// The engine that finds the pieces: "scanner" for known patterns, recognised by their text, else "regex".
    pub fn engine(&self) -> &'static str {
        match self.0 {
            Engine::Scanner(_) | Engine::Joins(_) | Engine::ByteJoins(_) => "scanner",
            Engine::Regex(_) => "regex",
        }
    }

    /// Passes the pieces of `text` to `emit`, in order.
    #[inline]
    pub fn split(&self, text: &str, stop: &Stop, emit: &mut impl FnMut(&str) -> Result<()>) -> Result<()> {
        self.split_into(text, stop, &mut Each { text, emit })
    }

    /// Passes the pieces of `text` to `sink`, in order.
    #[inline]
    pub fn split_into(&self, text: &str, stop: &Stop, sink: &mut impl Sink) -> Result<()> {
        match &self.0 {
            Engine::Scanner(scanner) => scanner.split(text, stop, sink),
            Engine::Joins(joins) => joins.split(text, stop, sink),
            Engine::ByteJoins(joins) => joins.split(text, stop, sink),
            Engine::Regex(steps) => split_by(steps, text, stop, &mut |piece| {
                let from = piece.as_ptr().addr() - text.as_ptr().addr();
                sink.put(from, from + piece.len())
            }),
        }
    }
}

fn split_by(steps: &[Step], text: &str, stop: &Stop, emit: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let Some((step, rest)) = steps.split_first() else { return emit(text) };
    let mut end = 0;
    let mut n_found = 0_u32;
    step.each_match(text, |from, to| {
        n_found = n_found.wrapping_add(1);
        if n_found.is_multiple_of(FOUND) {
            stop.check()?;
        }
        for piece in [&text[end..from], &text[from..to]] {
            if !piece.is_empty() {
                if rest.is_empty() { emit(piece)? } else { split_by(rest, piece, stop, emit)? }
            }
        }
        end = to;
        Ok(())
    })?;
    split_by(rest, &text[end..], stop, emit)
}

impl Step {
    /// A step as fancy-regex reads it. regex-automata runs it if the regex means the same there.
    fn new(text: &str) -> Result<Self> {
        let wrong = |error| CoreError::Pattern(format!("the pattern {text:?} does not compile: {error}."));
        let fancy = RegexBuilder::new(text).optimize(false).build().map_err(wrong)?;
        let tree = Expr::parse_tree(text).map_err(wrong)?.expr;
        if tree.has_descendant_or_self(|one| is_endless(one) && one.has_descendant_or_self(looks_far)) {
            return Err(CoreError::Pattern(format!(
                "the pattern {text:?} repeats a look-around that has a repetition itself, both without a bound: a single match \
                 could take hours. Bound one of them, as in {{0,100}}."
            )));
        }
        let quick = |text: &str| Regex::new(text).ok();
        if let Some(first) = before_space_idiom(&tree).as_ref().and_then(linear)
            && let (Some(all), Some(first)) = (quick(&format!(r"(?:{first})|\s+")), quick(&first))
        {
            return Ok(Self::Space { all, first });
        }
        let whole = linear(&tree).as_deref().and_then(quick);
        Ok(whole.map_or_else(|| Self::Backtracking(Box::new(fancy)), Self::Linear))
    }

    fn each_match(&self, text: &str, mut found: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        match self {
            Self::Linear(regex) => regex.find_iter(text).try_for_each(|one| found(one.start(), one.end())),
            Self::Space { all, first } => each_with_space(all, first, text, found),
            Self::Backtracking(regex) => regex.find_iter(text).try_for_each(|one| {
                let one = one.map_err(|error| {
                    CoreError::Pattern(format!(
                        "the pattern {:?} gave up on a text of {} bytes: {error}. Use a pattern that backtracks less.",
                        regex.as_str(),
                        text.len()
                    ))
                })?;
                found(one.start(), one.end())
            }),
        }
    }
}

/// Whether it is a look-around that may read a text to its end.
fn looks_far(one: &Expr) -> bool {
    matches!(one, Expr::LookAround(..)) && one.has_descendant_or_self(is_endless)
}

fn is_endless(one: &Expr) -> bool {
    matches!(one, Expr::Repeat { hi: usize::MAX, .. })
}

/// The alternatives before `|\s+(?!\S)|\s+`. A final `\s` without `+` means the same, because the alternative before it takes
/// every longer run.
fn before_space_idiom(tree: &Expr) -> Option<Expr> {
    let Expr::Alt(branches) = tree else { return None };
    let (first, last) = branches.split_last_chunk::<2>()?;
    let ends_in =
        |idiom| matches!(Expr::parse_tree(idiom), Ok(tree) if matches!(&tree.expr, Expr::Alt(two) if two == last));
    (!first.is_empty() && [r"\s+(?!\S)|\s+", r"\s+(?!\S)|\s"].into_iter().any(ends_in))
        .then(|| Expr::Alt(first.to_vec()))
}

/// The regex in regex-automata's syntax, if it has the same meaning there. The original text cannot be used: `x?+` is `(?>x?)` in
/// fancy-regex and `(?:x?)+` in regex-automata.
fn linear(tree: &Expr) -> Option<String> {
    let mut text = String::new();
    (!tree.has_descendant_or_self(|inner| !is_linear(inner))).then(|| tree.to_str(&mut text, 0))?;
    Some(text)
}

fn is_linear(one: &Expr) -> bool {
    use Expr::{Alt, Any, Concat, Delegate, Empty, Group, Literal, Repeat};
    matches!(
        one,
        Empty
            | Any { .. }
            | Literal { .. }
            | Delegate { .. }
            | Concat(_)
            | Alt(_)
            | Group(_)
            | Repeat { .. }
            | Expr::Assertion(Assertion::StartText | Assertion::EndText)
    )
}

/// The matches of `first|\s+(?!\S)|\s+`. They are those of `first|\s+`, with one change: a run of white space that the right side
/// matched, and that text follows, gives back its last character if it has more than one.
fn each_with_space(
    all: &Regex,
    first: &Regex,
    text: &str,
    mut found: impl FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while at < text.len() {
        let Some(one) = all.find(Input::new(text).range(at..)) else { break };
        let (start, mut end) = (one.start(), one.end());
        if end < text.len() && end > start {
            let last = text[start..end].chars().next_back().filter(|last| last.is_whitespace());
            if let Some(last) = last
                && end - start > last.len_utf8()
                && first.find(Input::new(text).range(start..).anchored(Anchored::Yes)).is_none()
            {
                end -= last.len_utf8();
            }
        }
        found(start, end)?;
        // An empty match cuts there, and the search continues after the next character.
        at = if end > start { end } else { end + text[end..].chars().next().map_or(1, char::len_utf8) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::named::NAMED;
    use crate::split::named::{GPT2, LLAMA3, O200K, QWEN2};

    fn pieces(steps: &[&str], text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let keep = &mut |piece: &str| {
            found.push(piece.to_string());
            Ok(())
        };
        Pattern::new(steps).unwrap().split(text, &Stop::default(), keep).unwrap();
        found
    }

    #[test]
    fn every_named_pattern_compiles_and_loses_nothing() {
        for (name, steps) in NAMED {
            let text = "It's 12345 o'clock,  isn't it?\r\n\n  東京 naïve\t\t🙂 x";
            assert_eq!(pieces(steps, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn the_named_patterns_are_scanned_and_others_are_not() {
        for (name, steps) in NAMED {
            assert_eq!(Pattern::new(steps).unwrap().engine(), "scanner", "{name}");
        }
        assert_eq!(Pattern::new(&[r"\p{L}+"]).unwrap().engine(), "regex");
        assert_eq!(Pattern::new(&[GPT2, r"\p{N}"]).unwrap().engine(), "regex");
    }

    #[test]
    fn a_run_of_spaces_leaves_its_last_one_to_the_word() {
        assert_eq!(pieces(&[GPT2], "a   b"), ["a", "  ", " b"]);
        assert_eq!(pieces(&[GPT2], "a \n b  "), ["a", " \n", " b", "  "]);
    }

    #[test]
    fn gaps_between_matches_are_pieces_and_an_empty_match_cuts() {
        assert_eq!(pieces(&["[0-9]+"], "ab12cd"), ["ab", "12", "cd"]);
        assert_eq!(pieces(&["(?=[A-Z])"], "aBcD"), ["a", "Bc", "D"]);
    }

    #[test]
    fn a_later_step_sees_each_piece_alone() {
        assert_eq!(pieces(NAMED[6].1, "a  12"), ["a", "  ", "1", "2"]);
    }

    #[test]
    fn no_steps_give_the_text_whole_and_an_empty_text_nothing() {
        assert_eq!(pieces(&[], "a b"), ["a b"]);
        assert!(pieces(&[GPT2], "").is_empty());
    }

    /// Compares all texts of up to four characters of a small alphabet with fancy-regex running the original pattern.
    #[test]
    fn the_linear_engine_splits_as_the_pattern_says() {
        const ALPHABET: [char; 9] = [' ', '\n', '\r', 'a', 'A', '1', '\'', '.', 's'];
        for step in [GPT2, LLAMA3, O200K, QWEN2] {
            let plain = fancy_regex::Regex::new(step).unwrap();
            let quick = Pattern::with_regex(&[step]).unwrap();
            assert!(matches!(&quick.0, Engine::Regex(steps) if matches!(steps[0], Step::Space { .. })));
            for length in 1..=4_u32 {
                for code in 0..9_usize.pow(length) {
                    let text: String = (0..length).map(|i| ALPHABET[code / 9_usize.pow(i) % 9]).collect();
                    let mut found = Vec::new();
                    let keep = &mut |piece: &str| {
                        found.push(piece.to_string());
                        Ok(())
                    };
                    quick.split(&text, &Stop::default(), keep).unwrap();
                    let expected: Vec<&str> = plain.find_iter(&text).map(|one| one.unwrap().as_str()).collect();
                    assert_eq!(found, expected, "{text:?}");
                }
            }
        }
    }

    #[test]
    fn a_pattern_that_backtracks_without_end_is_an_error() {
        let pattern = Pattern::new(&[r"((a|b|ab)*)(?=c)bc"]).unwrap();
        let found = pattern.split(&"ab".repeat(64), &Stop::default(), &mut |_| Ok(()));
        assert!(matches!(&found, Err(CoreError::Pattern(text)) if text.contains("gave up")), "{found:?}");
    }
}
