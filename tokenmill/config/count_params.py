"""The section count of params.yaml: how text is split into pre-tokens, and which of them count."""

import warnings
from typing import Annotated

from pydantic import BeforeValidator, ValidationInfo, field_validator

from tokenmill.config.section import Section, key
from tokenmill.counts.weights import weight_of
from tokenmill.errors import TokenmillDeprecationWarning

BY_SOURCES = "sources"
"""The value of count.by that makes a group of each source."""


def _rational(weights: object) -> object:
    for glob, weight in weights.items() if isinstance(weights, dict) else ():
        try:
            weight_of(weight)
        except ValueError as error:
            raise ValueError(f"{glob!r}: {error}") from None
    return weights or {}


class Count(Section):
    """How text is split into pre-tokens, how much each shard counts, and which pre-tokens are dropped."""

    pattern: str | None = key(
        "gpt2",
        "what splits text into pre-tokens: a name, a regex, or null (nothing). Names: gpt2, cl100k, o200k, llama3, qwen2, "
        "deepseek, starcoder, superbpe",
        "o200k",
        min_length=1,
    )
    count_min: int = key(1, "pre-tokens with a lower total count are dropped; 1: none", "2", ge=1, lt=2**64)
    weights: Annotated[dict[str, int | str], BeforeValidator(_rational)] = key(
        {},
        "factors for the counts of shards, by glob; 1 for a shard without a glob. Whole numbers are exact; with fractions, each "
        "sum is rounded once, halves up",
        '{data/raw/de/*: "3/2"}',
    )
    by: str | None = key(
        None,
        "the column or key that says a document's group, like lang, or sources: a group for each of sources, or else for each "
        "folder. The pre-tokens of each group are counted, too, for train_vocab.parity; null: no groups",
        "lang",
        min_length=1,
    )
    superwords: str | None = key(
        None,
        "for train_vocab.superwords, the pattern of a second count, whose pre-tokens hold several words: superbpe, which does not "
        "cut between words, or a regex. data/counts then has each sentence, about half of the text's size; null: no second count",
        "superbpe",
        min_length=1,
    )
    approximate: None = key(
        None,
        "deprecated, delete the line: counts are always exact",
        "null",
        validate_default=False,
    )
    partitions: int = key(
        1,
        "the number of parts in which the counts are added up. More than 1 is faster only with billions of distinct pre-tokens; "
        "the result has the same bytes",
        "16",
        ge=1,
        le=4096,
    )

    @field_validator("superwords")
    @classmethod
    def _whole_weights(cls, superwords: str | None, info: ValidationInfo) -> str | None:
        for glob, weight in (info.data.get("weights") or {}).items():
            if superwords is not None and weight_of(weight).denominator != 1:
                raise ValueError(
                    f"found together with the weight {weight} of {glob!r}; allowed: only with whole weights, since most sentences "
                    "occur once, and a sum is rounded. Multiply all weights by the same number"
                )
        return superwords

    @field_validator("approximate", mode="before")
    @classmethod
    def _always_exact(cls, found: object) -> None:
        if found is not None:
            raise ValueError(
                f"found {found}; allowed: null, as in an older params.yaml. Counts are exact, and are kept in files beyond "
                "run.memory_mb_max. Take the line out"
            )
        fix = "Take the line out of params.yaml: counts are always exact."
        warnings.warn(TokenmillDeprecationWarning("count.approximate", "0.5.0", fix), stacklevel=2)
