//! The Python class `TextFinder`: where given texts occur in a text. O(bytes of the text), however many texts are searched for.

use super::calls::run;
use crate::parallel::interrupt::{CoreError, Stop};
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
    fn spans(&self, py: Python<'_>, text: &str) -> PyResult<Vec<(usize, usize, usize)>> {
        run(py, |stop| {
            let (mut characters, mut bytes) = (0, 0);
            let found = self.longest.find_iter(text).enumerate().map(|(i, found)| {
                check_often(stop, i)?;
                let start = characters + text[bytes..found.start()].chars().count();
                let end = start + text[found.range()].chars().count();
                (characters, bytes) = (end, found.end());
                Ok((start, end, found.pattern().as_usize()))
            });
            found.collect()
        })
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
                for (i, one) in all.find_overlapping_iter(text).enumerate() {
                    check_often(stop, i)?;
                    found.insert(one.pattern().as_usize());
                }
            }
            Ok(found.into_iter().collect())
        })
    }
}

fn check_often(stop: &Stop, n_found: usize) -> Result<(), CoreError> {
    if n_found % 4096 == 4095 { stop.check() } else { Ok(()) }
}

fn automaton(texts: &[String], kind: MatchKind) -> Result<AhoCorasick, CoreError> {
    AhoCorasick::builder()
        .match_kind(kind)
        .build(texts)
        .map_err(|error| CoreError::Tokenizer(format!("the texts of special tokens cannot be searched for: {error}.")))
}
