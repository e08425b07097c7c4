"""The sections count, train_vocab, tokenizer, publish and refresh of params.yaml."""

import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from tokenmill.config.parity_params import Parity
from tokenmill.config.record import Record
from tokenmill.config.source_params import Globs
from tokenmill.config.superwords_params import Superwords
from tokenmill.conform.consumers import CONSUMERS
from tokenmill.counts.weights import weight_of
from tokenmill.errors import TokenmillDeprecationWarning, did_you_mean
from tokenmill.special_tokens import RESERVED_MAX

BY_SOURCES = "sources"
"""The value of count.by that makes a group of each source."""

N_BYTES = 256  # every vocabulary starts from a token for each byte


def _refuse_together(info: ValidationInfo, unused: Mapping[str, object], why: str = "") -> None:
    """Raises ValueError if one of these keys has another value than the one with which it does nothing."""
    for name, value in unused.items():
        found = info.data.get(name, value)
        if found != value:
            shown = name if isinstance(found, Record) else f"{name}: {found}"
            allowed = "null" if value is None else value
            raise ValueError(f"found together with {shown}; allowed: only with {name}: {allowed}{why}")


def _rational(weights: object) -> object:
    for glob, weight in weights.items() if isinstance(weights, dict) else ():
        try:
            weight_of(weight)
        except ValueError as error:
            raise ValueError(f"{glob!r}: {error}") from None
    return weights or {}


class Count(Record):
    """How text is split into pre-tokens, how much each shard counts, and which pre-tokens are dropped.

    `by`: what makes groups of documents, whose pre-tokens are also counted by themselves: a column, or BY_SOURCES. `superwords`:
    the pattern of a second count, whose pre-tokens hold several words, for train_vocab.superwords; null: there is none.
    `partitions`: how many parts the counts are divided into, each of which is added up by itself; it changes no byte of the
    result. `approximate`: always None; a params.yaml of an earlier version may still have the key."""

    pattern: str | None = Field(min_length=1)
    count_min: int = Field(ge=1, lt=2**64)
    weights: Annotated[dict[str, int | str], BeforeValidator(_rational)]
    by: str | None = Field(default=None, min_length=1)
    superwords: str | None = Field(default=None, min_length=1)
    approximate: None = Field(
        default=None, description="only null, in a params.yaml of an earlier version; counts are always exact"
    )
    partitions: int = Field(default=1, ge=1, le=4096)

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


class Extend(Record):
    """The tokenizer to add tokens to. `digest`: the expected digest of the tokenizer at `path`, which DVC does not track.
    `old_glob`: shards of the text it was made for; training reports how many of their documents get different ids."""

    path: str = Field(min_length=1)
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    old_glob: Globs | None


class Trim(Record):
    """The tokenizer to take tokens out of, and how many stay: `keep` tokens, or all that are used `min_count` times or more.
    `digest`: the expected digest of the tokenizer at `from`, which DVC does not track. `counts`: the tokens_per_id.parquet of a
    dataset, which says how often tokens are used; null: the project's own documents. `chosen`: texts of tokens that stay."""

    from_: str = Field(alias="from", min_length=1)
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    keep: int | None = Field(default=None, ge=1)
    min_count: int | None = Field(default=None, ge=1, validate_default=True)
    counts: str | None = Field(min_length=1)
    chosen: list[Annotated[str, Field(min_length=1)]] = Field(default=[])

    @field_validator("min_count")
    @classmethod
    def _one_limit(cls, min_count: int | None, info: ValidationInfo) -> int | None:
        if "keep" in info.data and (info.data["keep"] is None) == (min_count is None):
            raise ValueError(f"found {'neither' if min_count is None else 'both'} of keep and min_count; allowed: one")
        return min_count


def _smallest(info: ValidationInfo) -> tuple[int, str]:
    """The smallest allowed vocabulary size, and the sum that explains it. Counts only special tokens that passed their check."""
    n_special = len(info.data.get("special_tokens", ()))
    return N_BYTES + n_special, f"{N_BYTES} bytes + {n_special} special tokens"


class TrainVocab(Record):
    """What the vocabulary holds and when learning stops."""

    special_tokens: list[Annotated[str, Field(min_length=1)]]
    vocab_size: int = Field(lt=2**32 - 1)
    pair_count_min: int = Field(ge=1)
    token_bytes_max: int | None = Field(ge=2)
    score: Literal["count", "wordpiece", "bytes_saved"]
    pad_vocab_to: int = Field(ge=1, le=RESERVED_MAX)
    vocab_sizes: list[int]
    extend: Extend | None
    trim: Trim | None = None
    forbid: list[Annotated[str, Field(min_length=1)]] = Field(default=[])
    protect: list[Annotated[str, Field(min_length=1)]] = Field(default=[])
    parity: Parity | None = None
    superwords: Superwords | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    pad_token: str | None = None
    unk_token: str | None = None
    model_max_length: int | None = Field(default=None, ge=1)

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
        if wrong := [one for one in sizes if one < smallest or (largest is not None and one > largest)]:
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


def unused_counts(count: Count, asked: TrainVocab) -> Iterator[str]:
    """Sentences about counts that the documents are counted for, and that the vocabulary does not use."""
    if count.superwords is not None and asked.superwords is None:
        yield (
            "count.superwords is counted but not used, so no token has several words. Set train_vocab.superwords, such as "
            "{transition: 0.8, words_max: 4}, or count.superwords: null."
        )
    if count.by is not None and asked.parity is None:
        yield "count.by is counted but not used. Set train_vocab.parity, such as {variant: base}, or count.by: null."


class TokenizerSource(Record):
    """A tokenizer to import instead of training one: a published version, a file or a directory."""

    from_: str = Field(
        alias="from",
        min_length=1,
        description="where it is: the URL or path of a git repository, a tokenizer.json, a directory with one, a .tiktoken file",
    )
    name: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9][a-z0-9/-]*[a-z0-9]$",
        description="the artifact's name in that repository, like `tokenizer`; given together with `version`",
    )
    version: str | None = Field(
        default=None,
        min_length=1,
        validate_default=True,
        description="a version like v1.2.0, or a stage like prod",
    )
    pattern: str | None = Field(
        default=None,
        min_length=1,
        description="how text is split, for a .tiktoken file, which does not say it: a name or a regex, as in count.pattern",
    )
    special_tokens: dict[str, int] | None = Field(
        default=None,
        description="the special tokens with their ids, for a .tiktoken file, which does not have them",
    )

    @field_validator("version")
    @classmethod
    def _both_or_neither(cls, version: str | None, info: ValidationInfo) -> str | None:
        if "name" in info.data and (info.data["name"] is None) != (version is None):
            raise ValueError("found one of name and version; allowed: both (a published version), or neither (a file)")
        return version

    @field_validator("pattern", "special_tokens")
    @classmethod
    def _only_of_a_file(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("name") is not None:
            raise ValueError(
                "found together with name; allowed: only with a .tiktoken file; a published version has its own"
            )
        return value


class Publish(Record):
    """A fact for the model card of a tokenizer that only its owner knows, and what a version must hold."""

    license: str | None = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]*$")
    conform: list[str] = Field(default=[])

    @field_validator("conform")
    @classmethod
    def _are_libraries(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in CONSUMERS:
                hint = did_you_mean(name, CONSUMERS).rstrip("?").replace(" Did you mean", "; did you mean")
                raise ValueError(f"found {name!r}; allowed: {', '.join(CONSUMERS)}{hint}")
        return names


class Refresh(Record):
    """The limits of drift for new documents, and what a refresh does with its result."""

    drift_max: float = Field(gt=0, allow_inf_nan=False)
    new_scripts_max: float = Field(ge=0, le=1)
    drift_bytes_min: int = Field(default=100_000, ge=0)
    quarantine_max: float = Field(ge=0, le=1)
    on_drift: Literal["fail", "candidate"]
    publish: str | None = Field(min_length=1)
    notify: str | None = Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+$")
