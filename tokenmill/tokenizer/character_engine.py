"""The core as the encoder of a character-level BPE tokenizer with byte fallback, as SentencePiece makes them."""

from copy import copy
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa

from tokenmill import _core
from tokenmill.errors import TokenizerError
from tokenmill.pretokenizers.json_steps import BeyondCore, parts_of
from tokenmill.tokenizer.added_tokens import Finder, is_plain
from tokenmill.tokenizer.formats.tokenizer_json import PLAIN_BPE, merges_of
from tokenmill.tokenizer.model import BYTE_TOKENS, AddedToken, Merge
from tokenmill.tokenizer.tokenizers_engine import TokenizersEngine

_MARK = "▁"
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": _MARK}
_PREPEND = {"type": "Prepend", "prepend": _MARK}
_Front = Literal["none", "each part", "each part without a mark", "the beginning without a mark"]
"""Where a text gets a mark in front. Its parts are what added tokens leave of it."""
_FRONTS: dict[Any, _Front] = {
    "never": "none",
    "always": "each part without a mark",
    "first": "the beginning without a mark",
}
"""By Metaspace's prepend_scheme."""


class CharacterEngine(TokenizersEngine):
    """Encodes with the core and decodes with `tokenizers`. Raises BeyondCore for a document that the core cannot run exactly.

    The core's tokens have a space for the mark "▁", and it merges both alike in a text. If nothing is put in front of text, it
    finds added tokens, too, unless they have flags.
    """

    def __init__(
        self, document: dict[str, Any], content: bytes, place: str, allow_special: bool, cache_bytes_max: int
    ) -> None:
        self._front, cuts_at_marks = _front_of(document)
        added = [AddedToken.of(token, in_vocab=False) for token in document["added_tokens"]]
        early, late = ([token for token in added if token.normalized is phase] for phase in (False, True))
        shown = [token for token in early if allow_special or not token.special]
        hidden = [token for token in early if token.special and not allow_special]
        self._late: Finder | None = None
        self._prepares = ""
        if any(allow_special or not token.special for token in late):
            self._search_late(late, allow_special, has_normalizer=document.get("normalizer") is not None)
        in_core = shown if self._front == "none" and self._late is None and is_plain(shown, hidden) else []
        self._finder = None if in_core or not shown else Finder(shown, hidden)
        self._core = _encoder_of(document["model"], added, in_core, cuts_at_marks)
        self._core.limit_cache(cache_bytes_max)
        self._cache_bytes_max = cache_bytes_max
        super().__init__(document, content, place, allow_special)

    def _search_late(self, late: list[AddedToken], allow_special: bool, has_normalizer: bool) -> None:
        """Searches for the tokens that are `normalized`, in what the others leave of a text. `tokenizers` has then normalized
        both the text and the token, so a normalizer that puts a mark in front does so before the search and before nothing else."""
        if has_normalizer:
            self._prepares, self._front = _MARK if self._front == "each part" else "", "none"
            late = [replace(token, text=self._normalized(token.text)) for token in late]
        self._is_normalized = has_normalizer
        shown = [token for token in late if allow_special or not token.special]
        self._late = Finder(shown, [token for token in late if token.special and not allow_special])

    def _normalized(self, text: str) -> str:
        return self._prepares + text.replace(" ", _MARK) if text else text

    def _cut(self, text: str) -> list[str | int]:
        """The parts of a text between the added tokens that are found in it, and the ids of these."""
        parts: list[str | int] = self._finder.cut(text) if self._finder else [text]
        if self._late is None:
            return parts
        return [
            piece
            for part in parts
            for piece in (
                [part]
                if isinstance(part, int)
                else self._late.cut(self._normalized(part) if self._is_normalized else part)
            )
        ]

    def encode(self, text: str) -> list[int]:
        """The ids of one text. Raises UnicodeEncodeError for a lone surrogate."""
        text.encode()
        parts = self._cut(text)
        return [
            id
            for i, one in enumerate(parts)
            for id in ([one] if isinstance(one, int) else self._core.encode(self._spaced(one, is_first=i == 0)))
        ]

    def encode_batch(self, texts: Any, threads: int, begin_id: int | None = None, end_id: int | None = None) -> Any:
        """A large_list<uint32> array with one list per text. Each list begins with `begin_id` and ends with `end_id`, if given."""
        try:
            strings = texts.cast(pa.large_string())
        except pa.ArrowInvalid:
            return super().encode_batch(texts, threads, begin_id, end_id)  # its error names the text that is not UTF-8
        if strings.null_count:
            return super().encode_batch(texts, threads, begin_id, end_id)  # its error names the text that is null
        cut_texts = (self._finder or self._late) and [self._cut(text) for text in strings.to_pylist()]
        if not cut_texts or (
            self._late is None and all(len(parts) < 2 and isinstance(parts[0], str) for parts in cut_texts if parts)
        ):
            return self._core.encode_batch(_all_spaced(strings, self._front), threads, begin_id, end_id)
        return self._joined(cut_texts, threads, begin_id, end_id)

    def _joined(self, texts: list[list[str | int]], threads: int, begin_id: int | None, end_id: int | None) -> Any:
        """The ids of texts that are cut at added tokens."""
        import numpy as np

        pieces = [(piece, i == 0) for parts in texts for i, piece in enumerate(parts) if isinstance(piece, str)]
        strings = pa.array([piece for piece, _ in pieces], pa.large_string())
        are_first = pa.array([is_first for _, is_first in pieces], pa.bool_())
        lists = self._core.encode_batch(_all_spaced(strings, self._front, are_first), threads)
        ids, ends = lists.values.to_numpy(), iter(lists.offsets.to_numpy()[1:])
        begin, end = ([] if id is None else [np.array([id], np.uint32)] for id in (begin_id, end_id))
        offsets, arrays, done = [0], [np.empty(0, np.uint32)], 0
        for parts in texts:
            ids_of_parts = [*begin]
            for part in parts:
                if isinstance(part, int):
                    ids_of_parts.append(np.array([part], np.uint32))
                else:
                    start, done = done, next(ends)
                    ids_of_parts.append(ids[start:done])
            ids_of_parts += end
            arrays += ids_of_parts
            offsets.append(offsets[-1] + sum(map(len, ids_of_parts)))
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(np.concatenate(arrays)))

    def count_tokens(self, texts: Any, threads: int) -> Any:
        """A uint64 array: the number of ids of each text."""
        return self.encode_batch(texts, threads).value_lengths().cast(pa.uint64())

    def with_own_cache(self) -> "CharacterEngine":
        """An engine of the same vocabulary, which both hold once, with an empty cache."""
        engine = copy(self)
        engine._core = self._core.with_own_cache()
        engine._core.limit_cache(self._cache_bytes_max)
        return engine

    def _spaced(self, text: str, is_first: bool) -> str:
        """Does the work of `_all_spaced` for one text, much faster."""
        wanted = self._front == "each part" or not text.startswith((" ", _MARK))
        wanted &= is_first or self._front != "the beginning without a mark"
        return f" {text}" if text and wanted and self._front != "none" else text


def _all_spaced(
    texts: pa.LargeStringArray, front: _Front, are_first: pa.BooleanArray | None = None
) -> pa.LargeStringArray:
    """The texts with a space in front where there is to be one. `are_first`: which of them are the beginning of a text; None:
    all."""
    import pyarrow.compute as pc

    if front == "none":
        return texts
    space, nothing = (pa.scalar(character, pa.large_string()) for character in (" ", ""))
    wanted = pc.not_equal(texts, nothing)
    if front != "each part":
        for character in (" ", _MARK):
            wanted = pc.and_not(wanted, pc.starts_with(texts, character))
    if front == "the beginning without a mark" and are_first is not None:
        wanted = pc.and_(wanted, are_first)
    return pc.if_else(wanted, pc.binary_join_element_wise(space, texts, nothing), texts)


def _front_of(document: dict[str, Any]) -> tuple[_Front, bool]:
    """Where a mark is put in front of text, and whether text is then cut in front of each mark. Raises BeyondCore unless a
    normalizer, or Metaspace, only does this and marks spaces."""
    parts = parts_of(document.get("normalizer"), "normalizers")
    before = parts_of(document.get("pre_tokenizer"), "pretokenizers")
    if not parts and len(before) == 1 and before[0]["type"] == "Metaspace":
        metaspace = {name: value for name, value in before[0].items() if name != "type"}
        front, cuts = _FRONTS.get(str(metaspace.pop("prepend_scheme", None))), metaspace.pop("split", None)
        if front is None or cuts not in (True, False) or metaspace != {"replacement": _MARK}:
            raise BeyondCore("pre_tokenizer is Metaspace with other fields than the core knows")
        return front, cuts
    others = [part for part in parts if part != _REPLACE]
    if len(parts) - len(others) != 1 or others not in ([], [_PREPEND]):
        raise BeyondCore(f"normalizer is {(document.get('normalizer') or {'type': 'null'})['type']}")
    for one in before:
        # No space is left to split at.
        if one["type"] != "Split" or one.get("pattern") != {"String": " "} or one.get("invert"):
            raise BeyondCore(f"pre_tokenizer is {one['type']!r:.40}")
    return "each part" if others else "none", False


def _encoder_of(
    model: dict[str, Any], added: list[AddedToken], in_core: list[AddedToken], cuts_at_marks: bool
) -> _core.Encoder:
    """The core's encoder, which finds `in_core` of the added tokens. With `cuts_at_marks`, no merge joins a mark to what is in
    front of it. Raises BeyondCore."""
    if model["type"] != "BPE":
        raise BeyondCore(f"model.type is {model['type']!r:.40}")
    for field in (*PLAIN_BPE, "ignore_merges"):
        if model.get(field):
            raise BeyondCore(f"model.{field} is {model[field]!r:.40}")
    vocab: dict[str, int] = model["vocab"]
    if not model.get("byte_fallback") or not vocab.keys() >= {*BYTE_TOKENS, _MARK}:
        raise BeyondCore("model.byte_fallback is not set, or a byte or the mark has no token")
    import numpy as np

    fallback = [vocab[text] for text in BYTE_TOKENS]
    special = {token.text for token in added if token.special}
    apart = {vocab[text] for text in special if text in vocab} | set(fallback)
    apart |= {id for text, id in vocab.items() if " " in text}
    if any(len(text) == 1 for text in special & vocab.keys()):
        raise BeyondCore("a special token is a character of model.vocab")
    merges = np.frombuffer(merges_of(model["merges"], vocab).rows, "<u4").reshape(-1, len(Merge._fields))
    columns = [Merge._fields.index(name) for name in ("left", "right", "token")]
    ids = merges[:, columns]
    if np.isin(ids, list(apart)).any():
        raise BeyondCore("model.merges has a special token, a byte's token, or a token with a space")
    if cuts_at_marks:
        merges = merges[~np.isin(ids[:, 1], [id for text, id in vocab.items() if text.startswith(_MARK)])]
    tokens = {id: text.replace(_MARK, " ") for text, id in vocab.items()}
    text_of = {token.id: token.text for token in in_core}
    others = {id: tokens[id] for id in apart} | text_of
    reached = {id: text for id, text in tokens.items() if id not in apart}
    try:
        return _core.Encoder(
            [],
            _batch(reached),
            pa.record_batch([pa.array(column) for column in merges.T], names=list(Merge._fields)),
            _batch(others).append_column("in_text", pa.array([id in text_of for id in others], pa.bool_())),
            False,
            fallback,
        )
    except TokenizerError as error:
        raise BeyondCore(f"model: {error}") from None


def _batch(tokens: dict[int, str]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array(tokens, pa.uint32()),
            "token": pa.array([text.encode() for text in tokens.values()], pa.binary()),
        }
    )
