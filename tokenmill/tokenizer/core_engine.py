"""The core as an engine, with the two steps that may come before it: normalizing, and cutting at added tokens."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa

from tokenmill import _core
from tokenmill.arrow_texts import ArrowArray, one_array
from tokenmill.errors import PatternError, TokenizerError
from tokenmill.tokenizer.added_tokens import is_plain, normalized
from tokenmill.tokenizer.model import AddedToken, Model
from tokenmill.tokenizer.preparing import Phase, Preparing


def engine_of(
    model: Model, encoder: _core.Encoder, allow_special: bool, cache_bytes_max: int
) -> "_core.Encoder | PreparedCore":
    """The core's encoder itself if it alone gives the model's ids, else a `PreparedCore` around it. `encoder`: one of the model,
    with which the engine shares the vocabulary.

    Like `tokenizers`, the engine searches for added tokens twice: before normalizing for tokens that are not `normalized`,
    then in the remaining text for tokens that are. `allow_special` makes it find special tokens too. Raises TokenizerError
    for added tokens that cannot be searched for.
    """
    early, late = (Phase(model.added, normal, allow_special) for normal in (False, True))
    in_core = late if late.shown or (not early.shown) else early
    native = not model.add_prefix_space and is_plain(in_core.shown, in_core.hidden)
    native &= not (in_core is late and model.nfc and any(normalized(one.text) != one.text for one in late.all))

    def finding(shown: Iterable[AddedToken]) -> _core.Encoder:
        found = encoder.finding([token.id for token in shown])
        found.limit_cache(cache_bytes_max)
        return found

    whole = finding(in_core.shown if native else ())
    needed = [phase for phase in (early, late) if phase.shown and not (native and phase is in_core)]
    if not needed and not model.nfc and not model.add_prefix_space:
        return whole
    again = native and in_core is early and bool(early.shown)  # search here only in a text that normalizing changes
    preparing = Preparing(
        early=early.finder() if early in needed or again else None,
        early_in_core=again,
        late=late.finder(model.nfc) if late in needed else None,
        nfc=model.nfc,
        add_prefix_space=model.add_prefix_space,
    )
    return PreparedCore(whole, lambda: finding(()), preparing)


class PreparedCore:
    """Prepares a text in Python and encodes the pieces with the core. A text that needs no preparing goes to the core as it is.

    `whole` is the core's encoder for both. Normalizing may create the text of an early token, which must stay text; such pieces go
    to a core that finds no added tokens, which `make_bare` makes.
    """

    def __init__(self, whole: _core.Encoder, make_bare: Callable[[], _core.Encoder], preparing: Preparing) -> None:
        self._whole, self._make_bare = whole, make_bare
        self._preparing, self._early, self._early_in_core = preparing, preparing.early, preparing.early_in_core
        self._only_normalizes = not (
            preparing.late or preparing.add_prefix_space or (self._early and not self._early_in_core)
        )
        self.decode: Callable[[list[int] | ArrowArray], str] = whole.decode
        self.decode_bytes: Callable[[list[int] | ArrowArray], bytes] = whole.decode_bytes
        self.decode_batch: Callable[[Any, int], Any] = whole.decode_batch
        self.decodes_to: Callable[[Any, Any, bytes, bytes], bool] = whole.decodes_to
        self.warm: Callable[[Any], None] = whole.warm

    @cached_property
    def _bare(self) -> _core.Encoder:
        return self._make_bare()

    def prepared(self, text: str) -> bytes:
        """The bytes that the ids of a text decode to."""
        parts = self._preparing.parts(text)
        if parts is None:
            return text.encode()
        return b"".join(part.encode() if isinstance(part, str) else self.decode_bytes([part]) for part in parts)

    def _encoder(self, pieces: list[str]) -> _core.Encoder:
        made = self._early_in_core and self._early and any(map(self._early.is_in, pieces))
        return self._bare if made else self._whole

    def encode(self, text: str) -> list[int]:
        """The ids of one text. Raises UnicodeEncodeError, TokenizerError or PatternError."""
        text.encode()
        prepared = self._preparing.parts(text)
        if prepared is None:
            return self._whole.encode(text)
        encoder = self._encoder([one for one in prepared if isinstance(one, str)])
        return [id for one in prepared for id in ([one] if isinstance(one, int) else encoder.encode(one))]

    def encode_batch(self, texts: Any, threads: int, begin_id: int | None = None, end_id: int | None = None) -> Any:
        """A large_list<uint32> array with one list per text. Each list begins with `begin_id` and ends with `end_id`, if given.

        `texts`: as `for_core` gives them. If only normalizing can change a text, those in NFC go to the core as they are; if a
        text of the batch is also cut at an added token, all are copied."""
        prepared: dict[int, list[str | int]] | None = None
        if self._only_normalizes:
            rows = _core.not_nfc(texts)
            prepared = self._prepared_of(zip(rows, _texts_at(texts, rows), strict=True))
            one_texts = {i: one for i, parts in prepared.items() if (one := self._one_text(parts)) is not None}
            if len(one_texts) == len(prepared):
                return self._whole.encode_batch(_replaced(texts, one_texts), threads, begin_id, end_id)
        texts = one_array(texts)
        try:
            strings = texts.cast(pa.large_string())
        except pa.ArrowInvalid:
            return self._whole.encode_batch(
                texts, threads, begin_id, end_id
            )  # the core's error names the text that is not UTF-8
        if strings.null_count:
            return self._whole.encode_batch(
                texts, threads, begin_id, end_id
            )  # the core's error names the text that is null
        if prepared is None:
            prepared = self._prepared_of(enumerate(string.as_py() for string in strings))
        if not prepared:
            return self._whole.encode_batch(strings, threads, begin_id, end_id)
        import numpy as np

        is_whole = np.ones(len(strings), bool)
        is_whole[list(prepared)] = False
        pieces = [piece for parts in prepared.values() for piece in parts if isinstance(piece, str)]
        try:
            whole = self._whole.encode_batch(strings.filter(pa.array(is_whole)), threads, begin_id, end_id)
            cut = _runs(self._encoder(pieces).encode_batch(pa.array(pieces, pa.large_string()), threads))
        except (TokenizerError, PatternError):
            self._name_text(strings)
            raise
        begin, end = ([] if id is None else [pa.array([id], pa.uint32())] for id in (begin_id, end_id))
        lengths, whole_ends = np.empty(len(strings), np.int64), whole.offsets.to_numpy()
        lengths[is_whole] = whole.value_lengths().to_numpy()
        values, done = [], 0
        for n_before, (i, parts) in enumerate(prepared.items()):
            inner = [pa.array([part], pa.uint32()) if isinstance(part, int) else next(cut) for part in parts]
            arrays = [*begin, *inner, *end]
            start, done = done, whole_ends[i - n_before]
            values += [whole.values.slice(start, done - start), *arrays]
            lengths[i] = sum(map(len, arrays))
        offsets = np.concatenate([[0], lengths.cumsum()])
        return pa.LargeListArray.from_arrays(
            pa.array(offsets, pa.int64()), pa.concat_arrays([*values, whole.values.slice(done)])
        )

    def count_tokens(self, texts: Any, threads: int) -> Any:
        """A uint64 array: the number of ids of each text."""
        return self.encode_batch(texts, threads).value_lengths().cast(pa.uint64())

    def _prepared_of(self, texts: Iterable[tuple[int, str]]) -> dict[int, list[str | int]]:
        """The parts of the texts that need preparing, by the number of the text."""
        return {i: parts for i, text in texts if (parts := self._preparing.parts(text)) is not None}

    def _one_text(self, parts: list[str | int]) -> str | None:
        """A prepared text of which `whole` gives the ids: it was not cut, and has no early token, which normalizing made."""
        match parts:
            case [str(text)] if not (self._early and self._early.is_in(text)):
                return text
        return None

    def _name_text(self, strings: pa.LargeStringArray) -> None:
        """Encodes the texts one by one to raise the first error with its text's number. The core's error has a piece's number."""
        for i, text in enumerate(strings.to_pylist()):
            try:
                self.encode(text)
            except (TokenizerError, PatternError) as error:
                raise type(error)(f"text {i}: {error}") from None


def _texts_at(texts: Any, rows: list[int]) -> Iterator[str]:
    """These texts of a list or an Arrow array."""
    for i in rows:
        text = texts[i] if isinstance(texts, list) else texts[i].as_py()
        yield text.decode() if isinstance(text, bytes) else text


def _replaced(texts: Any, changed: dict[int, str]) -> Any:
    """The texts with others in some places; the rest of an Arrow array is not copied."""
    if not changed:
        return texts
    if isinstance(texts, list):
        is_bytes, texts = isinstance(texts[0], bytes), list(texts)
        for i, text in changed.items():
            texts[i] = text.encode() if is_bytes else text
        return texts
    parts: list[Any] = []
    start = 0
    for _, run in groupby(enumerate(sorted(changed)), lambda pair: pair[1] - pair[0]):
        neighbours = [i for _, i in run]
        parts += [texts[start : neighbours[0]], pa.array([changed[i] for i in neighbours], texts.type)]
        start = neighbours[-1] + 1
    parts.append(texts[start:])
    chunks = [chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    return pa.chunked_array(chunks, texts.type)


def _runs(lists: Any) -> Iterator[Any]:
    """The values of each list, in order."""
    offsets: Sequence[int] = lists.offsets.to_pylist()
    return (lists.values.slice(start, end - start) for start, end in pairwise(offsets))
