"""A byte-level BPE tokenizer as plain data: the file formats produce it and the core takes it."""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, overload

from tokenmill import _core
from tokenmill.errors import TokenizerError, shown

if TYPE_CHECKING:
    import pyarrow as pa

ID_MAX = 2**32 - 2
FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")
"""The flags of an added token in tokenizer.json."""

_MERGE = struct.Struct("<4I")


class Merge(NamedTuple):
    """A pair of ids that becomes a third id. The lowest rank is merged first; of equal ranks, the leftmost pair."""

    left: int
    right: int
    rank: int
    token: int


class Merges(Sequence[Merge]):
    """Learned merges, packed into bytes. Making a tuple for each merge would take longer than learning them.

    `rows` has the four fields of each Merge as little-endian uint32, merge after merge.
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
        return repr(list(self))  # part of a checkpoint's key

    @property
    def n_ranks(self) -> int:
        """The number of different ranks."""
        import numpy as np

        ranks = np.sort(np.frombuffer(self.rows, "<u4")[2 :: len(Merge._fields)])
        return int(np.count_nonzero(np.diff(ranks))) + min(len(ranks), 1)  # np.unique takes ten times as long

    def makes(self, tokens: Collection[int]) -> bool:
        """Whether a merge becomes one of these ids."""
        import numpy as np

        made = np.frombuffer(self.rows, "<u4")[Merge._fields.index("token") :: len(Merge._fields)]
        return bool(np.isin(made, list(tokens)).any())

    @classmethod
    def of(cls, merges: Sequence[Merge]) -> Merges:
        """Packs merges."""
        return merges if isinstance(merges, cls) else cls(b"".join(_MERGE.pack(*merge) for merge in merges))


@dataclass(frozen=True)
class AddedToken:
    """A token that is given by its text. Text becomes a special token only if that is allowed; other added tokens are found
    wherever their text occurs.

    `in_vocab`: model.vocab of tokenizer.json lists the token as well. The flags are those of tokenizer.json. `single_word`: no
    word character may stand beside the token. `lstrip`, `rstrip`: the token takes the white space on that side with it.
    `normalized`: the token is searched for after normalizing, in the text between the tokens that are not `normalized`.
    """

    id: int
    text: str
    special: bool
    in_vocab: bool
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False

    @classmethod
    def of(cls, one: Mapping[str, Any], in_vocab: bool) -> AddedToken:
        """The token of an entry of added_tokens in tokenizer.json."""
        return cls(one["id"], one["content"], in_vocab=in_vocab, **{flag: one[flag] for flag in FLAGS})

    @property
    def has_flags(self) -> bool:
        """Whether it has a flag that makes it match more or less than its text."""
        return self.single_word or self.lstrip or self.rstrip


@dataclass(frozen=True)
class Model:
    """`tokens`: bytes by id, without the added tokens. `steps`: the split pattern. `ignore_merges`: a pre-token that is itself
    a token becomes that token, whatever the merges say. `nfc`: text is normalized to NFC. `add_prefix_space`: text that
    does not begin with a space gets one. `not_applied`: parts of tokenizer.json that encoding ignores but saving keeps: the
    sections truncation, padding and post_processor, and settings of the model that no text can reach."""

    tokens: dict[int, bytes]
    merges: Sequence[Merge]
    steps: tuple[str, ...]
    added: tuple[AddedToken, ...]
    ignore_merges: bool
    nfc: bool = False
    add_prefix_space: bool = False
    not_applied: Mapping[str, Any] = field(default_factory=dict)

    def token_bytes(self) -> dict[int, bytes]:
        """The bytes of every token by id. The bytes of an added token are its text in UTF-8."""
        return self.tokens | {token.id: token.text.encode() for token in self.added}

    def merged_tokens(self) -> dict[int, bytes]:
        """The bytes by id of the tokens that bytes become by merging: `tokens`, and the added tokens that are in a merge, too."""
        vocab_tokens = [added_token for added_token in self.added if added_token.in_vocab and not added_token.special]
        if not vocab_tokens:
            return self.tokens
        parts = {id for merge in self.merges for id in (merge.left, merge.right, merge.token)}
        return self.tokens | {token.id: token.text.encode() for token in vocab_tokens if token.id in parts}

    def merging_alone(self) -> Model:
        """The model without a split and without added tokens that are found in a text: what becomes of a pre-token."""
        return Model(self.merged_tokens(), self.merges, (), (), self.ignore_merges)


def encoder_of(model: Model) -> _core.Encoder:
    """The core's encoder, which finds no added tokens in text.

    Raises TokenizerError for a vocabulary that contradicts itself, and PatternError for split steps it cannot run.
    """
    import numpy as np
    import pyarrow as pa

    columns = np.frombuffer(Merges.of(model.merges).rows, "<u4").reshape(-1, len(Merge._fields)).T
    merges = [pa.array(column) for column in columns]
    added = pa.record_batch(
        {
            "id": pa.array([token.id for token in model.added], pa.uint32()),
            "token": pa.array([token.text.encode() for token in model.added], pa.binary()),
            "in_text": pa.repeat(False, len(model.added)),
        }
    )
    return _core.Encoder(
        model.steps, _vocabulary(model), pa.record_batch(merges, names=list(Merge._fields)), added, model.ignore_merges
    )


def _vocabulary(model: Model) -> pa.RecordBatch:
    import pyarrow as pa

    ids = pa.array(model.tokens.keys(), pa.uint32())
    return pa.record_batch({"id": ids, "token": pa.array(model.tokens.values(), pa.binary())})


def digest_of(model: Model) -> str:
    """The sha256, in hex, of everything that decides ids or bytes here or in another library. Formatting does not change it."""
    added = [
        [token.id, token.text, token.special, token.single_word, token.lstrip, token.rstrip, token.normalized]
        for token in sorted(model.added, key=lambda one: one.id)
    ]
    small = {
        "add_prefix_space": model.add_prefix_space,
        "added": added,
        "ignore_merges": model.ignore_merges,
        "nfc": model.nfc,
        "not_applied": model.not_applied,
        "steps": model.steps,
    }
    texts = {name: _canonical(value) for name, value in small.items()}
    texts["merges"], texts["tokens"] = _core.bpe_json(Merges.of(model.merges).rows, _vocabulary(model))
    return _sha256("{" + ",".join(f'"{name}":{texts[name]}' for name in sorted(texts)) + "}")


def sha256_of(canonical: Any) -> str:
    """The sha256, in hex, of JSON values. The order of keys does not change it."""
    return _sha256(_canonical(canonical))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _sha256(text: str) -> str:
    import hashlib  # 4 MB

    return hashlib.sha256(text.encode()).hexdigest()


def check_id(id: object, place: str) -> int:
    """The id, if it is a valid one. Raises a TokenizerError whose message begins with `place`."""
    if type(id) is not int or not 0 <= id <= ID_MAX:
        raise TokenizerError(place, f"id {shown(id)}; expected an integer from 0 to {ID_MAX:,}.")
    return id


def is_text(value: object) -> TypeGuard[str]:
    """Whether the value can be the text of an added token: a str, not empty, without lone surrogates."""
    return isinstance(value, str) and value != "" and not any("\ud800" <= character <= "\udfff" for character in value)


def _characters() -> list[str]:
    """GPT-2's character for each byte: the byte's own character if visible, else the next unused one from 256 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256)]


CHARACTERS = _characters()
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The tokens of single bytes in a vocabulary of characters with byte fallback."""
_DECODING = "".join(CHARACTERS)
_ENCODING = codecs.charmap_build(_DECODING)


def characters_of(token: bytes) -> str:
    """The bytes as text in GPT-2's byte-level alphabet.

    >>> characters_of(b" the")
    'Ġthe'
    """
    return codecs.charmap_decode(token, "strict", _DECODING)[0]


def bytes_of(characters: str) -> bytes | None:
    """The bytes that a text in the byte-level alphabet stands for; None if the text has other characters.

    >>> bytes_of("Ġthe"), bytes_of("▁the")
    (b' the', None)
    """
    try:
        return codecs.charmap_encode(characters, "strict", _ENCODING)[0]
    except UnicodeEncodeError:
        return None
