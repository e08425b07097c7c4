//! The Python class `TextFinder`: where given texts occur in a text. O(bytes of the text), however many texts are searched for.

use super::calls::run;
use crate::parallel::interrupt::CoreError;
use aho_corasick::{AhoCorasick, MatchKind};
use pyo3::prelude::*;
use std::collections::BTreeSet;

#[pyclass(frozen, module = "tokenmill._core")]
pub(super) struct TextFinder {
    texts: Vec<String>,
    longest: AhoCorasick,
}

#[pymethods]
impl TextFinder {
    #[new]
    fn new(py: Python<'_>, texts: Vec<String>) -> PyResult<Self> {
        run(py, |_| {
            let longest = automaton(&texts, MatchKind::LeftmostLongest)?;
            Ok(Self { texts, longest })
        })
    }

    /// The leftmost texts, of these the longest, one behind another: first and last character, and the number of the text.
    fn spans(&self, text: &str) -> Vec<(usize, usize, usize)> {
        let (mut characters, mut bytes) = (0, 0);
        let found = self.longest.find_iter(text).map(|found| {
            let start = characters + text[bytes..found.start()].chars().count();
            let stop = start + text[found.range()].chars().count();
            (characters, bytes) = (stop, found.end());
            (start, stop, found.pattern().as_usize())
        });
        found.collect()
    }

    fn is_in(&self, text: &str) -> bool {
        self.longest.is_match(text)
    }

    /// The numbers of all that occur in one of the texts, also inside of others.
    fn occurring(&self, py: Python<'_>, texts: Vec<String>) -> PyResult<Vec<usize>> {
        run(py, |stop| {
            let all = automaton(&self.texts, MatchKind::Standard)?;
            let mut found = BTreeSet::new();
            for text in &texts {
                stop.check()?;
                found.extend(all.find_overlapping_iter(text).map(|one| one.pattern().as_usize()));
            }
            Ok(found.into_iter().collect())
        })
    }
}

fn automaton(texts: &[String], kind: MatchKind) -> Result<AhoCorasick, CoreError> {
    AhoCorasick::builder()
        .match_kind(kind)
        .build(texts)
        .map_err(|error| CoreError::Tokenizer(format!("the texts of special tokens cannot be searched for: {error}.")))
}
