"""The second engine: the `tokenizers` library, for tokenizers that the core cannot run, behind the core's interface."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tokenmill.errors import CorpusError, TokenizerError
from tokenmill.vocabulary import bytes_of


class TokenizersEngine:
    """A tokenizer.json run by `tokenizers`: text of special tokens stays text, and nothing is added, cut or padded."""

    def __init__(self, document: dict[str, Any], content: bytes, place: str) -> None:
        import tokenizers

        with _as_tokenizer_error(place):
            self._tokenizer: Any = tokenizers.Tokenizer.from_str(content.decode())
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            self._tokenizer.encode_special_tokens = True
            vocab: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        self._is_byte_level = (document.get("decoder") or {}).get("type") == "ByteLevel"
        added = {one["content"] for one in document["added_tokens"]}
        self.tokens = {
            id: self._bytes(text, text in added) for text, id in sorted(vocab.items(), key=lambda item: item[1])
        }
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
        self.digest = hashlib.sha256(canonical.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The ids of one text. Raises UnicodeEncodeError for a lone surrogate."""
        text.encode()
        with _as_tokenizer_error("the text"):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Any, threads: int, end_id: int | None = None) -> Any:
        """An array large_list<uint32>, in the calling thread whatever `threads` is."""
        end = [] if end_id is None else [end_id]
        offsets, values = [0], []
        for i, text in enumerate(_strings(texts)):
            if text is None:
                raise CorpusError(f"text {i} is null; expected a string.")
            ids = self.encode(text) + end
            offsets.append(offsets[-1] + len(ids))
            values.append(pa.array(ids, pa.uint32()))
        flat = pa.concat_arrays(values) if values else pa.array([], pa.uint32())
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)

    def count_tokens(self, texts: Any, threads: int) -> Any:
        """An array uint64, the number of ids of each text."""
        return self.encode_batch(texts, threads).value_lengths().cast(pa.uint64())

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of the tokens, joined; for a tokenizer that is not byte-level, its text in UTF-8."""
        if unknown := [id for id in ids if id not in self.tokens]:
            raise TokenizerError(f"id {unknown[0]} is not in the vocabulary; its largest id is {max(self.tokens)}.")
        if self._is_byte_level:
            return b"".join(self.tokens[id] for id in ids)
        with _as_tokenizer_error("the ids"):
            text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text.encode()

    def decode_batch(self, ids: Any, threads: int) -> Any:
        """list or large_list of ids → an array large_binary."""
        return pa.array([self.decode_bytes(one.as_py()) for one in ids], pa.large_binary())

    def _bytes(self, text: str, added: bool) -> bytes:
        token = bytes_of(text) if self._is_byte_level and not added else None
        return text.encode() if token is None else token


def _strings(texts: pa.Array) -> Iterator[str | None]:
    try:
        strings = texts.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise CorpusError(f"a text is not UTF-8: {error}") from None
    return (one.as_py() for one in strings)


@contextmanager
def _as_tokenizer_error(place: str) -> Iterator[None]:
    """Turns what `tokenizers` raises into a TokenizerError: Exception itself, and pyo3's PanicException, which is none."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{place}: the tokenizers library cannot handle it: {error}") from None
