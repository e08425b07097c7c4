"""The second engine: runs the `tokenizers` library, behind the core's interface, for tokenizers that the core cannot run."""

import json
import os
import re
import tempfile
from array import array
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tokenmill.calls import counted
from tokenmill.errors import CorpusError, TokenizerError
from tokenmill.pretokenizers.json_steps import parts_of
from tokenmill.pretokenizers.patterns import hard_text
from tokenmill.tokenizer import library_trial
from tokenmill.tokenizer.formats.library_limits import growth
from tokenmill.tokenizer.formats.schema import check_range
from tokenmill.tokenizer.model import CHARACTERS, bytes_of, sha256_of

_GROWN_BYTES = 2**24
"""The bytes that a text may grow to unlooked at. `tokenizers` takes about 20 bytes of memory for each."""
_TRIED_CHARS = 2**10
_COUNTED_CHARS = 2**16
_TOKEN_BYTES = 340
"""The memory that the library and Python's list of ids take for a token: measured 336 bytes with a token for each character."""
_SPAN_BYTES = 450
"""What `spans` takes for a token: measured 448 bytes."""


class GrownError(TokenizerError):
    """A text for which the library may lack the memory, which would end the process."""


class TokenizersEngine:
    """A tokenizer.json run by `tokenizers`. Encoding adds no tokens, truncates and pads nothing, and never drops a character
    silently. The text of a special token stays text unless `allow_special` is set."""

    def __init__(self, document: dict[str, Any], content: bytes, place: str, allow_special: bool = False) -> None:
        import tokenizers

        self._tokenizer = _read(document, content, place)
        with as_tokenizer_error(place), _without_panic_messages():
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            self._tokenizer.encode_special_tokens = not allow_special
            vocab: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
            check_range(vocab, "model.vocab")
            if _may_leave_out(document):
                self._tokenizer.model = tokenizers.Tokenizer.from_str(
                    _watched(document["model"], max(vocab.values()))
                ).model
            if regexes := _regexes(document):
                _try(self._tokenizer, hard_text(regexes), regexes)
        self._growth = growth(document)
        self._missing_id = max(vocab.values()) + 1
        unk = document["model"].get("unk_token")
        self._control = (
            {}
            if allow_special
            else {
                token["id"]: token["content"]
                for token in document["added_tokens"]
                if token["special"] and token["content"] != unk
            }
        )
        if isinstance(unk_id := document["model"].get("unk_id"), int):
            self._control.pop(unk_id, None)
        self._unwanted = frozenset([self._missing_id, *self._control])
        self._is_byte_level = (document.get("decoder") or {}).get("type") == "ByteLevel"
        added = {token["content"] for token in document["added_tokens"]} - self._also_of_bytes(document)
        self.tokens: dict[int, bytes] = {
            id: self._bytes(text, text in added) for text, id in sorted(vocab.items(), key=lambda item: item[1])
        }
        self.digest: str = sha256_of(document)

    def with_own_cache(self) -> "TokenizersEngine":
        """An engine that shares no cache with this one; `tokenizers` has none."""
        return self

    def encode(self, text: str) -> list[int]:
        """The ids of one text. Raises UnicodeEncodeError for a lone surrogate. Raises TokenizerError for a character without a
        token, and for text that the model itself turns into a special token."""
        text.encode()
        ids = self._ids(text)
        self._check(ids, text)
        return ids

    def memory_bytes(self, text: str, enough: int, with_spans: bool) -> int:
        """The memory that encoding a text takes, in bytes. It is counted in pieces if `enough` could be too little. `with_spans`:
        also for `spans`, which are asked for afterwards."""
        token_bytes = _SPAN_BYTES if with_spans else _TOKEN_BYTES
        if (most := token_bytes * int(len(text) * self._growth)) <= enough:
            return most
        pieces = (text[at : at + _COUNTED_CHARS] for at in range(0, len(text), _COUNTED_CHARS))
        return token_bytes * sum(len(self._ids(piece)) for piece in pieces)

    def _ids(self, text: str) -> list[int]:
        if len(text) * self._growth > _GROWN_BYTES:
            self._check_growth(text)
        with as_tokenizer_error("the text"):  # `encode` would find offsets too, which takes a third more time
            ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def _check_growth(self, text: str) -> None:
        """Raises GrownError for a text that the library may lack the memory for, which would abort. It is tried in pieces."""
        normalizer, splitter, left = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer, 6 * len(text.encode())
        for at in range(0, len(text), _TRIED_CHARS):
            piece = text[at : at + _TRIED_CHARS]
            with as_tokenizer_error("the text"):
                piece = normalizer.normalize_str(piece) if normalizer else piece
                parts = splitter.pre_tokenize_str(piece) if splitter else [(piece, None)]
            if (left := left - sum(len(part.encode()) for part, _ in parts)) < 0:
                raise GrownError(
                    "",
                    f"the normalizer and the pre_tokenizer make a text of {len(text):,} characters more than 6 times "
                    "as long.",
                    "Split it, or remove what they insert.",
                )

    def _check(self, ids: list[int], text: str) -> None:
        """Raises TokenizerError if the ids lack a character of the text, or have a special token that its text does not allow."""
        if self._unwanted.isdisjoint(ids):
            return
        unwanted = {self._missing_id} if self._missing_id in ids else self._control.keys()
        id, start, end = self._first_of(unwanted, ids, text)
        if id == self._missing_id:
            raise TokenizerError(
                "",
                f"the vocabulary has no token for {text[start:end]!r:.40}, or a byte of it, at character {start}; "
                "the tokenizers library would leave it out.",
                "Use a tokenizer with an unknown token or all 256 bytes.",
            )
        raise TokenizerError(
            "",
            f"the tokenizer's own vocabulary makes the special token {self._control[id]!r:.60} of text at character "
            f"{start}.",
            "Remove that text, or allow special tokens in text.",
        )

    def _first_of(self, unwanted: Collection[int], ids: list[int], text: str) -> tuple[int, int, int]:
        """The first of these ids in the ids of the text, and the characters that it covers. Looked for in pieces first, because
        spans of the whole text take more memory than its ids."""
        for offset in range(0, len(text) if len(text) > _COUNTED_CHARS else 0, _COUNTED_CHARS):
            piece = text[offset : offset + _COUNTED_CHARS]
            for id, (start, end) in zip(self._ids(piece), self.spans(piece), strict=True):
                if id in unwanted:
                    return id, offset + start, offset + end
        i, id = next((i, id) for i, id in enumerate(ids) if id in unwanted)
        return id, *self.spans(text)[i]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """For each id of the text, the characters that it covers: from the first up to, not including, the second."""
        with as_tokenizer_error("the text"):
            # `encode` would hold the GIL.
            found: list[tuple[int, int]] = self._tokenizer.encode_batch([text], add_special_tokens=False)[0].offsets
        return found

    def encode_batch(self, texts: Any, threads: int, begin_id: int | None = None, end_id: int | None = None) -> Any:
        """A large_list<uint32> array. One thread works at a time, whatever `threads` is."""
        begin, end = ([] if id is None else [id] for id in (begin_id, end_id))
        offsets, flat = array("q", [0]), array("I")
        for i, text in enumerate(_strings(texts)):
            try:
                ids = self.encode(text)
            except TokenizerError as error:
                raise TokenizerError(f"text {i}: {error}") from None
            for part in (begin, ids, end):
                flat.fromlist(part)
            offsets.append(len(flat))
        lists = (
            pa.Array.from_buffers(kind, len(one), [None, pa.py_buffer(one)])
            for kind, one in ((pa.int64(), offsets), (pa.uint32(), flat))
        )
        return pa.LargeListArray.from_arrays(*lists)

    def count_tokens(self, texts: Any, threads: int) -> Any:
        """A uint64 array: the number of ids of each text."""
        return self.encode_batch(texts, threads).value_lengths().cast(pa.uint64())

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the tokens. Invalid UTF-8 becomes U+FFFD."""
        return self.decode_bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of the tokens, joined. For a tokenizer that is not byte-level, the decoded text in UTF-8."""
        if unknown := [id for id in ids if id not in self.tokens]:
            raise TokenizerError(f"id {unknown[0]} is not in the vocabulary; its largest id is {max(self.tokens)}.")
        if self._is_byte_level:
            return b"".join(self.tokens[id] for id in ids)
        with as_tokenizer_error("the ids"):
            # `decode` would hold the GIL.
            text: str = self._tokenizer.decode_batch([list(ids)], skip_special_tokens=False)[0]
        return text.encode()

    def decode_batch(self, ids: Any, threads: int) -> Any:
        """A large_binary array: the bytes of each list of ids. `ids`: an array of list or large_list."""
        decoded = []
        for i, list_ids in enumerate(ids):
            try:
                decoded.append(self.decode_bytes(list_ids.as_py()))
            except TokenizerError as error:
                raise TokenizerError(f"list {i}: {error}") from None
        return pa.array(decoded, pa.large_binary())

    def _also_of_bytes(self, document: dict[str, Any]) -> set[str]:
        """The added tokens that bytes of other texts become as well, so that their ids stand for these bytes, as `tokenizers` has
        it: tokens of single bytes, and tokens that merges make."""
        model = document["model"]
        if not self._is_byte_level or model["type"] != "BPE":
            return set()
        texts = {token["content"] for token in document["added_tokens"] if not token["special"]}.intersection(
            model["vocab"]
        )
        if not texts or model.get("ignore_merges"):
            return texts
        merged = {left + right for left, right in model["merges"]}
        return {text for text in texts if len(text) == 1 or text in merged}

    def _bytes(self, text: str, added: bool) -> bytes:
        token = bytes_of(text) if self._is_byte_level and not added else None
        return text.encode() if token is None else token


def _read(document: dict[str, Any], content: bytes, place: str) -> Any:
    """Raises TokenizerError naming the section that `tokenizers` cannot read. The library itself names only a column."""
    from tokenizers import Tokenizer

    library_trial.check(content, place)
    try:
        with as_tokenizer_error(place), _without_panic_messages():
            return Tokenizer.from_str(content.decode())
    except TokenizerError:
        for section in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model"):
            alone = {"model": {"type": "BPE", "vocab": {}, "merges": []}, section: document.get(section)}
            with as_tokenizer_error(f"{place}: {section}"), _without_panic_messages():
                Tokenizer.from_str(json.dumps(alone))
        raise


def check_distinct(document: dict[str, Any], place: str) -> None:
    """Raises TokenizerError if the normalizer turns two added tokens into the same text. `tokenizers` would find one of the two,
    and which one changes each time the file is loaded."""
    import tokenizers

    only_normalizer = {"normalizer": document["normalizer"], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    content = json.dumps(only_normalizer)
    library_trial.check(content.encode(), place)
    with as_tokenizer_error(place), _without_panic_messages():
        normalizer = tokenizers.Tokenizer.from_str(content).normalizer
        seen: dict[str, str] = {}
        for i, one in enumerate(document["added_tokens"]):
            text = one["content"]
            if one["normalized"] and (other := seen.setdefault(normalizer.normalize_str(text), text)) != text:
                raise TokenizerError(
                    f"added_tokens[{i}]",
                    f"{text!r:.60} and {other!r:.60} are the same text after normalizing.",
                    "Remove one, or set its normalized to false.",
                )


def _regexes(document: dict[str, Any]) -> list[str]:
    """Every regex in the normalizer and the pre_tokenizer."""
    regexes, waiting = [], [document.get("normalizer"), document.get("pre_tokenizer")]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("Regex"), str):
                regexes.append(part["Regex"])
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return regexes


def _try(tokenizer: Any, text: str, regexes: list[str]) -> None:
    """Raises TokenizerError if a regex gives up on a hard text, because it would give up on a document too."""
    shown = ", ".join(repr(regex)[:60] for regex in regexes)
    with as_tokenizer_error(f"a regex of the pre_tokenizer or normalizer ({shown}) backtracks without end, or fails"):
        if tokenizer.normalizer is not None:
            text = tokenizer.normalizer.normalize_str(text)
        if tokenizer.pre_tokenizer is not None:
            tokenizer.pre_tokenizer.pre_tokenize_str(text)


def _may_leave_out(document: dict[str, Any]) -> bool:
    """Whether `tokenizers` would silently drop a character: one without a token, in a BPE model without an unknown token."""
    model = document["model"]
    if model["type"] != "BPE" or model.get("unk_token") is not None:
        return False
    kinds = {part["type"] for part in parts_of(document.get("pre_tokenizer"), "pretokenizers")}
    affixes = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    return bool(affixes) or "ByteLevel" not in kinds or not model["vocab"].keys() >= set(CHARACTERS)


def _watched(model: dict[str, Any], id_max: int) -> str:
    """A tokenizer.json of the model with an extra token, with an unused id, for every character that would be dropped."""
    missing = "no token for this"
    watched = {**model, "vocab": {**model["vocab"], missing: id_max + 1}, "unk_token": missing, "fuse_unk": False}
    return json.dumps({"version": "1.0", "added_tokens": [], "model": watched})


def _strings(texts: pa.Array) -> Iterator[str]:
    for i, one in enumerate(texts):
        try:
            text = one.as_py()
            text = text.decode() if isinstance(text, bytes) else text
        except UnicodeDecodeError as error:
            raise CorpusError(f"text {i} is not UTF-8 at byte {error.start}; expected UTF-8.") from None
        if text is None:
            raise CorpusError(f"text {i} is null; expected a string.")
        yield text


@contextmanager
def _without_panic_messages() -> Iterator[None]:
    """Holds back the process's standard error, and drops it if an exception follows: a panic of `tokenizers` prints a backtrace
    there before it becomes an exception."""
    with tempfile.TemporaryFile() as held:
        standard_error = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
            held.seek(0)
            os.write(standard_error, held.read())
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)


@contextmanager
def as_tokenizer_error(place: str) -> Iterator[None]:
    """Turns errors of `tokenizers` into TokenizerError. It raises plain Exception, and pyo3's PanicException, a BaseException."""
    try:
        with counted(place):
            yield
    except TokenizerError as error:
        raise TokenizerError(*error.inside(place)) from None
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        said = re.sub(r" at line \d+ column \d+$", "", str(error))
        raise TokenizerError(place, f"the tokenizers library cannot handle it: {said}") from None
