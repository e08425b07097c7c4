"""Finds the tokens that cover given characters of a text."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.tokenizer.tokenizer import Tokenizer

Flags: TypeAlias = np.ndarray[Any, np.dtype[np.int8]]

_IDS_AT_ONCE = 1 << 16


class CharacterRange(NamedTuple):
    """The characters `start` to `end` - 1, at least one, of the text with the index `text`."""

    text: int
    start: int
    end: int


def covered(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    ids: pa.LargeListArray,
    ranges: Sequence[CharacterRange],
    special: SpecialTokensInText,
) -> Flags:
    """For each id of all texts, in order: 1 if its token lies between those of a range's first and last characters, inclusive, else
    0. `ids`: the texts encoded with this `special`."""
    n_ids = int(ids.offsets[-1].as_py())
    if not ranges:
        return np.zeros(n_ids, np.int8)
    found = _by_characters if tokenizer.model is None else _by_bytes
    firsts, stops = found(tokenizer, texts, ids, ranges, special)
    return between(firsts, stops, n_ids)


def between(firsts: Any, stops: Any, n_ids: int) -> Flags:
    """1 from each first id up to but not including its stop, else 0.

    >>> between([1, 4], [3, 5], 6)
    array([0, 1, 1, 0, 1, 0], dtype=int8)
    """
    flags = np.zeros(n_ids, np.int8)
    for first, stop in zip(firsts, stops, strict=True):
        flags[first:stop] = 1
    return flags


def _by_bytes(
    tokenizer: Tokenizer, texts: Sequence[str], ids: Any, ranges: Sequence[CharacterRange], special: SpecialTokensInText
) -> tuple[Any, Any]:
    """The first and stop ids of the ranges, for the core's engine, whose tokens concatenate to the prepared text."""
    starts = _starts_of(tokenizer.token_lengths, ids.values.to_numpy())
    begins = starts[ids.offsets.to_numpy()]  # of the concatenated texts
    prepared = _Prepared(tokenizer, special)
    wanted = np.array(
        [
            (token_range.text, *prepared.bytes_of(texts[token_range.text], token_range.start, token_range.end))
            for token_range in ranges
        ]
    )
    first_bytes, end_bytes = (begins[wanted[:, 0]] + wanted[:, i] for i in (1, 2))
    return starts.searchsorted(first_bytes, "right") - 1, starts.searchsorted(end_bytes, "left")


def _starts_of(token_lengths: Any, ids: Any) -> Any:
    """The byte at which each token begins, and the one behind the last. Ids are looked up in pieces, because NumPy copies them
    as int64."""
    starts = np.zeros(len(ids) + 1, np.int64)
    for at in range(0, len(ids), _IDS_AT_ONCE):
        some = ids[at : at + _IDS_AT_ONCE]
        starts[at + 1 : at + 1 + len(some)] = token_lengths[some]
    return np.cumsum(starts, out=starts)


class _Prepared:
    """Maps characters of texts to bytes of the prepared texts that the core encodes: normalized, or with a space in front."""

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokensInText) -> None:
        model = tokenizer.model
        assert model is not None
        self._tokenizer, self._special = tokenizer, special
        self._takes_space = any(token.has_flags for token in model.added)
        self._not_if_ascii = not model.add_prefix_space and not self._takes_space
        self._never = self._not_if_ascii and not model.nfc

    def bytes_of(self, text: str, start: int, end: int) -> tuple[int, int]:
        """The first byte of the characters, and the one after their last. Includes neighbours with which normalizing joins them,
        and white space that an added token takes."""
        if text.isascii() and self._not_if_ascii:
            return start, end
        if self._never or (whole := self._prepared(text)) == text.encode():
            first = len(text[:start].encode())
            return first, first + len(text[start:end].encode())
        while self._takes_space and start and self._prepared(text[:start]) == self._prepared(text[: start + 1]):
            start -= 1
        while not whole.startswith(before := self._prepared(text[:start])):
            start -= 1
        while not whole.startswith(through := self._prepared(text[:end])):
            end += 1
        return len(before), len(through)

    def _prepared(self, text: str) -> bytes:
        return self._tokenizer.prepared(text, self._special)


def _by_characters(
    tokenizer: Tokenizer, texts: Sequence[str], ids: Any, ranges: Sequence[CharacterRange], special: SpecialTokensInText
) -> tuple[Any, Any]:
    """The first and stop ids of the ranges, by the offsets of the tokenizers library."""
    begins = ids.offsets.to_numpy()
    firsts, stops = [], []
    known: dict[int, Any] = {}
    for token_range in ranges:
        if token_range.text not in known:
            known = {
                token_range.text: np.array(tokenizer.character_spans(texts[token_range.text], special)).reshape(-1, 2)
            }
        spans = known[token_range.text]
        (overlapping,) = np.nonzero((spans[:, 0] < token_range.end) & (spans[:, 1] > token_range.start))
        if len(overlapping):
            firsts.append(begins[token_range.text] + overlapping[0])
            stops.append(begins[token_range.text] + overlapping[-1] + 1)
    return firsts, stops
