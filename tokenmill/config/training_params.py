"""The section train_vocab of params.yaml: what the vocabulary holds, and when learning stops."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from tokenmill.config.count_params import Count
from tokenmill.config.parity_params import Parity
from tokenmill.config.record import Record
from tokenmill.config.section import Section, key
from tokenmill.config.source_params import Globs
from tokenmill.config.superwords_params import Superwords
from tokenmill.quantities import number_of
from tokenmill.special_tokens import RESERVED_MAX

N_BYTES = 256  # every vocabulary starts from a token for each byte


def _refuse_together(info: ValidationInfo, unused: Mapping[str, object], why: str = "") -> None:
    """Raises ValueError if one of these keys has another value than the one with which it does nothing."""
    for name, value in unused.items():
        found = info.data.get(name, value)
        if found != value:
            shown = name if isinstance(found, Record) else f"{name}: {found}"
            allowed = "null" if value is None else value
            raise ValueError(f"found together with {shown}; allowed: only with {name}: {allowed}{why}")


_DIGEST = (
    "the expected digest of that tokenizer, because DVC does not track it. A build that finds another one says which"
)


class Extend(Section):
    """The tokenizer to add tokens to."""

    path: str = key(..., "the folder of that tokenizer", "old/tokenizer", min_length=1)
    digest: str = key(..., _DIGEST, "SHA256", pattern="^[0-9a-f]{64}$")
    old_glob: Globs | None = key(
        ...,
        "shards of the text that it was made for: training reports how many of their documents get different ids; null: none",
        "data/old/*.jsonl",
    )


class Trim(Section):
    """The tokenizer to take tokens out of, and how many stay."""

    from_: str = key(..., "the folder of that tokenizer", "old/tokenizer", alias="from", min_length=1)
    digest: str = key(..., _DIGEST, "SHA256", pattern="^[0-9a-f]{64}$")
    keep: int | None = key(None, "the number of tokens in all; null: min_count decides", "32000", ge=1)
    min_count: int | None = key(
        None, "instead of keep: tokens that are used less often are taken out; null: keep decides", "10", ge=1
    )
    counts: str | None = key(
        ...,
        "the tokens_per_id.parquet of a dataset, which says how often tokens are used. Name it in dvc.yaml's deps of train-vocab, "
        "too; null: their uses in the documents are counted, by that tokenizer's rules",
        "old/tokens_per_id.parquet",
        min_length=1,
    )
    chosen: list[Annotated[str, Field(min_length=1)]] = key([], "texts of further tokens that stay", '["<think>"]')

    @field_validator("min_count")
    @classmethod
    def _one_limit(cls, min_count: int | None, info: ValidationInfo) -> int | None:
        if "keep" in info.data and (info.data["keep"] is None) == (min_count is None):
            raise ValueError(f"found {'neither' if min_count is None else 'both'} of keep and min_count; allowed: one")
        return min_count


def _smallest(info: ValidationInfo) -> tuple[int, str]:
    """The smallest allowed vocabulary size, and the sum that explains it. Counts only special tokens that passed their check."""
    n_special = len(info.data.get("special_tokens", ()))
    return N_BYTES + n_special, f"{N_BYTES} bytes + {number_of(n_special, 'special token')}"


class TrainVocab(Section):
    """What the vocabulary holds and when learning stops."""

    special_tokens: list[Annotated[str, Field(min_length=1)]] = key(
        ["<|endoftext|>"],
        "tokens that get the first ids, in this order; text never becomes one of them",
        '["<|endoftext|>", "<|pad|>"]',
    )
    vocab_size: int = key(16384, "all tokens: special tokens + 256 bytes + learned tokens", "32000", lt=2**32 - 1)
    pair_count_min: int = key(2, "a pair that occurs less often is not merged", "10", ge=1)
    token_bytes_max: int | None = key(
        None,
        "learned tokens are shorter than this many bytes (tokenizers' max_token_length); null: no limit",
        "16",
        ge=2,
    )
    score: Literal["count", "wordpiece", "bytes_saved"] = key(
        "count",
        "which pair is merged first: count (BPE), wordpiece (count / left's count / right's count), bytes_saved",
        "bytes_saved",
    )
    pad_vocab_to: int = key(
        1,
        "reserved special tokens are added until the vocabulary size is a multiple of this; 1: none",
        "128",
        ge=1,
        le=RESERVED_MAX,
    )
    vocab_sizes: list[int] = key(
        [], "smaller vocabularies of the same run, each written to data/tokenizer/SIZE", "[4096, 8192]"
    )
    extend: Extend | None = key(
        None,
        "a tokenizer to add tokens to; null: none. The documents are counted as it prepares them: in NFC, with a space in front, "
        "or cut at its added tokens",
        "{path: old/tokenizer, digest: SHA256, old_glob: null}",
    )
    trim: Trim | None = key(
        None,
        "a tokenizer to take rarely used tokens out of; null: none. Special tokens, bytes and the texts of chosen stay",
        "{from: old/tokenizer, digest: SHA256, keep: 32000, counts: null}",
    )
    forbid: list[Annotated[str, Field(min_length=1)]] = key(
        [],
        "regexes of Python's re over the bytes of tokens: learning makes no token in which one of them is found. Each time such "
        "tokens came up, it begins again without them",
        '["[0-9].|.[0-9]"]',
    )
    protect: list[Annotated[str, Field(min_length=1)]] = key(
        [],
        "regexes as in forbid: a token in which one of them is found is all of its match. With the example, digits stay apart from "
        "letters, and in groups of three at most. Learned as with forbid",
        '["[0-9]{1,3}"]',
    )
    parity: Parity | None = key(
        None,
        "each merge is learned for the group of count.by that is compressed worst; null: for all documents together",
        "{variant: base}",
    )
    superwords: Superwords | None = key(
        None,
        "tokens of several words, as in SuperBPE; null: tokens within words. The tokenizer then has the pattern of "
        "count.superwords",
        "{transition: 0.8, words_max: 4}",
    )
    bos_token: str | None = key(
        None,
        "the special token that tokenizer_config.json names as bos_token, for transformers; null: encode.begin_of_document",
        '"<|endoftext|>"',
    )
    eos_token: str | None = key(
        None,
        "the special token that tokenizer_config.json names as eos_token; null: encode.end_of_document",
        '"<|endoftext|>"',
    )
    pad_token: str | None = key(
        None, "the special token that tokenizer_config.json names as pad_token; null: none", '"<|endoftext|>"'
    )
    unk_token: str | None = key(
        None,
        "the special token that tokenizer_config.json names as unk_token; null: none. No text becomes it: every byte has a token",
        '"<|endoftext|>"',
    )
    model_max_length: int | None = key(
        None,
        "the tokens a model takes at most, which tokenizer_config.json tells transformers; null: no limit",
        "4096",
        ge=1,
    )

    # These validate single fields, because such validators run even if other fields are wrong. So one error lists everything.

    @field_validator("special_tokens")
    @classmethod
    def _each_once(cls, tokens: list[str]) -> list[str]:
        if len(set(tokens)) < len(tokens):
            raise ValueError(f"found {tokens}; allowed: every token once")
        return tokens

    @field_validator("vocab_size")
    @classmethod
    def _room_for_all(cls, vocab_size: int, info: ValidationInfo) -> int:
        smallest, words = _smallest(info)
        if vocab_size < smallest:
            raise ValueError(f"found {vocab_size}; allowed: {smallest} or more ({words})")
        return vocab_size

    @field_validator("vocab_sizes")
    @classmethod
    def _smaller_than_the_first(cls, sizes: list[int], info: ValidationInfo) -> list[int]:
        smallest, _ = _smallest(info)
        largest = info.data.get("vocab_size")
        if wrong := [size for size in sizes if size < smallest or (largest is not None and size > largest)]:
            raise ValueError(
                f"found {wrong[0]}; allowed: {smallest} to vocab_size ({largest or 'which is wrong, too'})"
            )
        return sizes

    @field_validator("extend")
    @classmethod
    def _one_vocabulary(cls, extend: Extend | None, info: ValidationInfo) -> Extend | None:
        if extend and (sizes := info.data.get("vocab_sizes")):
            raise ValueError(
                f"found together with vocab_sizes {sizes}; allowed: only one of the two, since extending gives one vocabulary"
            )
        return extend

    @field_validator("trim")
    @classmethod
    def _only_trimmed(cls, trim: Trim | None, info: ValidationInfo) -> Trim | None:
        if trim:
            why = ", since trimming gives one vocabulary of the tokens of `from`"
            _refuse_together(info, {"extend": None, "vocab_sizes": [], "pad_vocab_to": 1}, why)
        return trim

    @field_validator("forbid", "protect")
    @classmethod
    def _compile(cls, patterns: list[str], info: ValidationInfo) -> list[str]:
        if patterns and info.data.get("trim"):
            raise ValueError(
                f"found {patterns} together with trim; allowed: only with trim: null, since trimming learns nothing"
            )
        for pattern in patterns:
            if re.search(r"\[[^\]]*[^\x00-\x7f]", pattern):
                raise ValueError(
                    f"found {pattern!r}; allowed in [...]: ASCII alone, since it matches bytes. Write (?:é|à) for others"
                )
            try:
                is_empty = re.search(pattern.encode(), b"") is not None
            except (re.error, UnicodeEncodeError) as error:
                raise ValueError(f"found {pattern!r}, which is no regex of Python's re: {error}") from None
            if is_empty:
                raise ValueError(
                    f"found {pattern!r}, which also matches an empty text, and so refuses every token; allowed: what matches a byte"
                )
        return patterns

    @field_validator("parity")
    @classmethod
    def _alone(cls, parity: Parity | None, info: ValidationInfo) -> Parity | None:
        if parity:
            _refuse_together(info, {"score": "count", "extend": None, "trim": None, "forbid": [], "protect": []})
        return parity

    @field_validator("superwords")
    @classmethod
    def _without_others(cls, superwords: Superwords | None, info: ValidationInfo) -> Superwords | None:
        if superwords:
            _refuse_together(info, {"score": "count", "vocab_sizes": [], "extend": None, "trim": None, "parity": None})
            smallest, _ = _smallest(info)
            n_learned = info.data.get("vocab_size", smallest) - smallest
            if n_learned and superwords.n_first(n_learned) == n_learned:
                raise ValueError(
                    f"found transition: {superwords.transition}, which leaves none of the {n_learned:,} learned tokens for the "
                    "second phase; allowed: a smaller transition, or a larger vocab_size"
                )
        return superwords

    @property
    def transition_size(self) -> int:
        """The tokens of the vocabulary when tokens of several words begin; all of them without superwords."""
        smallest = N_BYTES + len(self.special_tokens)
        if self.superwords is None:
            return self.vocab_size
        return smallest + self.superwords.n_first(self.vocab_size - smallest)

    @property
    def base(self) -> tuple[str, str, str] | None:
        """The key that names the tokenizer to begin from, its path, and its digest; None for a new tokenizer."""
        if self.extend is not None:
            return "extend", self.extend.path, self.extend.digest
        return None if self.trim is None else ("trim", self.trim.from_, self.trim.digest)

    @field_validator("bos_token", "eos_token", "pad_token", "unk_token")
    @classmethod
    def _is_special(cls, token: str | None, info: ValidationInfo) -> str | None:
        known = info.data.get("special_tokens")
        if (
            token is not None
            and known is not None
            and not (info.data.get("extend") or info.data.get("trim"))
            and token not in known
        ):
            raise ValueError(f"found {token!r}; allowed: null or one of train_vocab.special_tokens ({known})")
        return token


def unused_counts(count: Count, train_vocab: TrainVocab) -> Iterator[str]:
    """Sentences about counts that the documents are counted for, and that the vocabulary does not use."""
    if count.superwords is not None and train_vocab.superwords is None:
        yield (
            "count.superwords is counted but not used, so no token has several words. Set train_vocab.superwords, such as "
            "{transition: 0.8, words_max: 4}, or count.superwords: null."
        )
    if count.by is not None and train_vocab.parity is None:
        yield "count.by is counted but not used. Set train_vocab.parity, such as {variant: base}, or count.by: null."
