"""Compares tokenizers on the same documents: bytes per token, tokens per word and whole words, by group of documents."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.corpus.scripts import main_scripts
from tokenmill.tokenizer.tokenizer import Tokenizer

_WORD = r"[\p{L}\p{M}]+"
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


def words_of(texts: pa.LargeStringArray, scripts: pa.StringArray) -> pl.DataFrame:
    """The words of the texts: `word`, each word once, with a space in front, and `texts`, the index of each text that has it, as
    often as it has it. Words are runs of letters and marks (General_Category L and M), without digits and punctuation.

    Texts whose script has no blanks between words have none.

    >>> words_of(pa.array(["the cat's 2", "磨坊", "s"], pa.large_string()), pa.array(["Latin", "Han", "Latin"])).rows()
    [(' the', [0]), (' cat', [0]), (' s', [0, 2])]
    """
    return (
        pl.DataFrame({"text": texts, "script": scripts})
        .with_row_index("texts")
        .filter(~pl.col("script").is_in(UNSPACED))
        .select("texts", word=pl.col("text").str.extract_all(_WORD))
        .explode("word", empty_as_null=False)
        .group_by(word=" " + pl.col("word"), maintain_order=True)
        .agg("texts")
    )


def scripts_of(texts: pa.LargeStringArray) -> pa.StringArray:
    """The script of each text's beginning, or "none"."""
    return pa.array(main_scripts(pc.utf8_slice_codeunits(texts, 0, _SCRIPT_CHARACTERS)), pa.string())


def measure(
    tokenizer: Tokenizer, texts: pa.LargeStringArray, words: pl.DataFrame, groups: Mapping[str, pa.StringArray]
) -> dict[str, dict[str, Measured]]:
    """Measures the tokenizer on each group of texts.

    `groups`: for each kind of group, the name of each text's group, or null. Tokens exclude those that end documents. A word is
    encoded with a space in front, and is whole if it is one token.
    """
    n_tokens = pl.Series(tokenizer.count_tokens(words["word"].to_arrow()))
    of_words = (
        words.select(n_tokens=n_tokens, text="texts")
        .explode("text")
        .group_by("text")
        .agg(words=pl.len(), word_tokens=pl.sum("n_tokens"), whole=(pl.col("n_tokens") == 1).sum())
    )
    of_texts = pl.DataFrame({"tokens": tokenizer.count_tokens(texts), "bytes": pc.binary_length(texts)})
    of_texts = of_texts.with_row_index("text").join(of_words, on="text", how="left")
    return {kind: _of_groups(of_texts.with_columns(name=pl.Series(names))) for kind, names in groups.items()}


def _of_groups(texts: pl.DataFrame) -> dict[str, Measured]:
    sums = pl.sum("bytes", "tokens", "words", "word_tokens", "whole")
    groups = texts.drop_nulls("name").group_by("name").agg(pl.len().alias("documents"), sums).sort("name")
    return {
        group["name"]: Measured(
            group["documents"],
            group["bytes"],
            _ratio(group["bytes"], group["tokens"]),
            _ratio(group["word_tokens"], group["words"]),
            _ratio(group["whole"], group["words"]),
        )
        for group in groups.to_dicts()
    }


def _ratio(above: int, below: int) -> float | None:
    return round(above / below, 6) if below else None
