"""Compares tokenizers on the same documents: bytes per token, tokens per word and whole words, by group of documents."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.corpus.scripts import main_scripts
from tokenmill.tokenizer.tokenizer import Tokenizer

_NO_WORD = r"[^\p{L}\p{M}]+"
_SCRIPT_CHARACTERS = 300  # of a text's beginning, which 28 regexes search
UNSPACED = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan")
"""Scripts without blanks between words, where a run of letters is not a word."""


@dataclass(frozen=True)
class Measured:
    """The measures of one tokenizer on one group of documents; None if the group has no words or no text."""

    n_documents: int
    n_bytes: int
    bytes_per_token: float | None
    tokens_per_word: float | None
    words_whole_share: float | None


MeasuredGroups = Mapping[str, Mapping[str, Measured]]
"""By kind of group ("overall", "source", "script", "lang"), then by its name."""


@dataclass(frozen=True)
class WordTable:
    """The words of some texts. `distinct`: each word once, with a space in front. `codes`: each word's index in `distinct`.
    `texts`: the index of each word's text."""

    distinct: pa.LargeStringArray
    codes: npt.NDArray[np.int64]
    texts: npt.NDArray[np.int64]


def words_of(texts: pa.LargeStringArray, scripts: pa.StringArray) -> WordTable:
    """Finds the words of the texts: runs of letters and marks (General_Category L and M), without digits and punctuation.

    Texts whose script has no blanks between words have none.

    >>> words_of(pa.array(["the cat's 2", "磨坊"], pa.large_string()), pa.array(["Latin", "Han"])).distinct.to_pylist()
    [' the', ' cat', ' s']
    """
    spaced = pc.invert(pc.is_in(scripts, pa.array(UNSPACED)))
    lists = pc.split_pattern_regex(texts.filter(spaced), _NO_WORD)
    words, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
    is_word = pc.not_equal(words, "")
    encoded = words.filter(is_word).dictionary_encode()
    where = np.flatnonzero(spaced.to_numpy(zero_copy_only=False))
    distinct = pa.array([f" {word}" for word in encoded.dictionary.to_pylist()], pa.large_string())
    texts_of = where[parents.filter(is_word).to_numpy()] if len(where) else np.empty(0, np.int64)
    return WordTable(distinct, encoded.indices.to_numpy().astype(np.int64), texts_of)


def scripts_of(texts: pa.LargeStringArray) -> pa.StringArray:
    """The script of each text's beginning, or "none"."""
    return pa.array(main_scripts(pc.utf8_slice_codeunits(texts, 0, _SCRIPT_CHARACTERS)), pa.string())


def measure(
    tokenizer: Tokenizer, texts: pa.LargeStringArray, words: WordTable, groups: Mapping[str, pa.StringArray]
) -> dict[str, dict[str, Measured]]:
    """Measures the tokenizer on each group of texts.

    `groups`: for each kind of group, the name of each text's group, or null. Tokens exclude those that end documents. A word is
    encoded with a space in front, and is whole if it is one token.
    """
    n_tokens = tokenizer.count_tokens(texts).to_numpy().astype(np.int64)
    n_bytes = pc.binary_length(texts).to_numpy().astype(np.int64)
    of_word = tokenizer.count_tokens(words.distinct).to_numpy().astype(np.int64)[words.codes]
    of_text = {
        "documents": np.ones(len(texts), np.int64),
        "bytes": n_bytes,
        "tokens": n_tokens,
        "words": np.bincount(words.texts, minlength=len(texts)),
        "word_tokens": np.bincount(words.texts, of_word, len(texts)),
        "whole": np.bincount(words.texts, of_word == 1, len(texts)),
    }
    return {kind: _of_groups(names, of_text) for kind, names in groups.items()}


def _of_groups(names: pa.StringArray, of_text: Mapping[str, npt.NDArray[np.int64]]) -> dict[str, Measured]:
    encoded = names.dictionary_encode()
    is_in = encoded.indices.is_valid().to_numpy(zero_copy_only=False)
    codes = encoded.indices.drop_null().to_numpy()
    n = len(encoded.dictionary)
    sums = {key: np.bincount(codes, values[is_in], n) for key, values in of_text.items()}
    found = {}
    for i, name in enumerate(encoded.dictionary.to_pylist()):
        one = {key: int(values[i]) for key, values in sums.items()}
        found[name] = Measured(
            one["documents"],
            one["bytes"],
            _ratio(one["bytes"], one["tokens"]),
            _ratio(one["word_tokens"], one["words"]),
            _ratio(one["whole"], one["words"]),
        )
    return dict(sorted(found.items()))


def _ratio(above: int, below: int) -> float | None:
    return round(above / below, 6) if below else None
