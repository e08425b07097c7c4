"""A byte-level BPE tokenizer as plain data, between the file formats and the core."""

from __future__ import annotations

import json
import struct
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard, overload

from tokenmill import _core
from tokenmill.errors import TokenizerError, shown

ID_MAX = 2**32 - 2

_MERGE = struct.Struct("<4I")


class Merge(NamedTuple):
    """Two ids that become a third; the lowest rank goes first, then the leftmost pair."""

    left: int
    right: int
    rank: int
    token: int


class Merges(Sequence[Merge]):
    """Learned merges packed: a tuple for each would take longer than learning them.

    `rows`: the fields of Merge, uint32, little-endian, merge after merge.
    """

    def __init__(self, rows: bytes) -> None:
        self.rows = rows

    @overload
    def __getitem__(self, at: int) -> Merge: ...
    @overload
    def __getitem__(self, at: slice) -> Merges: ...
    def __getitem__(self, at: int | slice) -> Merge | Merges:
        i = range(len(self))[at]
        if isinstance(i, range):
            return Merges.of([self[one] for one in i])
        return Merge._make(_MERGE.unpack_from(self.rows, i * _MERGE.size))

    def __len__(self) -> int:
        return len(self.rows) // _MERGE.size

    def __iter__(self) -> Iterator[Merge]:
        return map(Merge._make, _MERGE.iter_unpack(self.rows))

    def __repr__(self) -> str:
        return repr(list(self))  # the key of a checkpoint is made of it

    @classmethod
    def of(cls, merges: Sequence[Merge]) -> Merges:
        """The same merges packed."""
        return merges if isinstance(merges, cls) else cls(b"".join(_MERGE.pack(*merge) for merge in merges))


@dataclass(frozen=True)
class AddedToken:
    """A token by its text. A special one comes from text only where that is allowed; any other wherever its text stands.

    `in_vocab`: model.vocab of tokenizer.json lists it as well. The flags are those of tokenizer.json: a `single_word` has no
    word's character beside it, `lstrip` and `rstrip` take the white space there with them, and a `normalized` one is looked
    for after normalizing, between those that are not.
    """

    id: int
    text: str
    special: bool
    in_vocab: bool
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False

    @property
    def has_flags(self) -> bool:
        """Whether it is more than its text."""
        return self.single_word or self.lstrip or self.rstrip


@dataclass(frozen=True)
class Model:
    """`tokens`: bytes by id, without the added ones. `steps`: the split pattern. `ignore_merges`: a pre-token that is a
    token is taken whole, whatever the merges say. `nfc`: text is normalized to that form. `add_prefix_space`: text that
    does not begin with a space gets one. `not_applied`: what tokenizer.json has besides, for others: its sections
    truncation, padding and post_processor, and settings of the model that no text can reach."""

    tokens: dict[int, bytes]
    merges: Sequence[Merge]
    steps: tuple[str, ...]
    added: tuple[AddedToken, ...]
    ignore_merges: bool
    nfc: bool = False
    add_prefix_space: bool = False
    not_applied: Mapping[str, Any] = field(default_factory=dict)

    def token_bytes(self) -> dict[int, bytes]:
        """The bytes of every token by id, those of an added one being its text in UTF-8."""
        return self.tokens | {one.id: one.text.encode() for one in self.added}


def encoder_of(model: Model, in_text: Container[int]) -> _core.Encoder:
    """The core's encoder, which finds the added tokens with the ids `in_text` wherever their texts stand.

    Raises TokenizerError for a vocabulary that contradicts itself, PatternError for the steps.
    """
    import numpy as np
    import pyarrow as pa

    ids = pa.array(model.tokens.keys(), pa.uint32())
    vocabulary = pa.record_batch({"id": ids, "token": pa.array(model.tokens.values(), pa.binary())})
    columns = np.frombuffer(Merges.of(model.merges).rows, "<u4").reshape(-1, len(Merge._fields)).T
    merges = [pa.array(column) for column in columns]
    added = pa.record_batch(
        {
            "id": pa.array([one.id for one in model.added], pa.uint32()),
            "token": pa.array([one.text.encode() for one in model.added], pa.binary()),
            "in_text": pa.array([one.id in in_text for one in model.added], pa.bool_()),
        }
    )
    return _core.Encoder(
        model.steps, vocabulary, pa.record_batch(merges, names=list(Merge._fields)), added, model.ignore_merges
    )


def digest_of(model: Model) -> str:
    """The sha256, in hex, of everything that decides ids or bytes, here or in another library; not of how it is written."""
    order = {rank: i for i, rank in enumerate(sorted({merge.rank for merge in model.merges}))}
    added = [
        [one.id, one.text, one.special, one.single_word, one.lstrip, one.rstrip, one.normalized]
        for one in sorted(model.added, key=lambda one: one.id)
    ]
    canonical = {
        "add_prefix_space": model.add_prefix_space,
        "added": added,
        "ignore_merges": model.ignore_merges,
        "merges": sorted([order[merge.rank], merge.left, merge.right, merge.token] for merge in model.merges),
        "nfc": model.nfc,
        "not_applied": model.not_applied,
        "steps": model.steps,
        "tokens": [[id, token.hex()] for id, token in sorted(model.tokens.items())],
    }
    return sha256_of(canonical)


def sha256_of(canonical: Any) -> str:
    """The sha256, in hex, of values of JSON, whatever the order of keys."""
    import hashlib  # 4 MB

    return hashlib.sha256(json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_id(id: object, place: str) -> int:
    """The id, when it is one. Raises TokenizerError that begins with `place`."""
    if type(id) is not int or not 0 <= id <= ID_MAX:
        raise TokenizerError(f"{place}: id {shown(id)}; expected an integer from 0 to {ID_MAX:,}.")
    return id


def is_text(value: object) -> TypeGuard[str]:
    """Whether it can be an added token's text: a str, not empty, without lone surrogates."""
    return isinstance(value, str) and value != "" and not any("\ud800" <= character <= "\udfff" for character in value)


def _characters() -> list[str]:
    """GPT-2's character for each byte: itself where that is visible, else the next one from 256 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256)]


CHARACTERS = _characters()
_FROM_LATIN = dict(enumerate(CHARACTERS))
_VISIBLE = {ord(character) for character in CHARACTERS}
# Codes below 256 that are no byte's character (a blank's, for one) go beyond latin-1, where encoding stops.
_TO_LATIN = {ord(character): chr(byte) for byte, character in enumerate(CHARACTERS)} | {
    code: "\uffff" for code in range(256) if code not in _VISIBLE
}


def characters_of(token: bytes) -> str:
    """Bytes in the byte-level alphabet.

    >>> characters_of(b" the")
    'Ġthe'
    """
    return token.decode("latin-1").translate(_FROM_LATIN)


def bytes_of(characters: str) -> bytes | None:
    """The bytes that a text of the byte-level alphabet stands for; None for a text with other characters.

    >>> bytes_of("Ġthe"), bytes_of("▁the")
    (b' the', None)
    """
    try:
        return characters.translate(_TO_LATIN).encode("latin-1")
    except UnicodeEncodeError:
        return None
