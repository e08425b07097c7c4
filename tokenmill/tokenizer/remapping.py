"""Turns the ids of a tokenizer into those of a tokenizer that was trimmed from it, without the documents.

Where no dropped token occurs in a pre-token, its ids are only renumbered: a dropped merge was never applied in it, because what
it made would be there, or would be part of another dropped token. Where one occurs, its parts may merge with their neighbours now:
with ab before bd, "abd" was ab d, and without ab it is a bd. So the text around it is decoded and encoded again, between two
places that are ends of pre-tokens for certain.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.errors import TokenizerError
from tokenmill.pretokenizers.patterns import name_of
from tokenmill.tokenizer.formats.tiktoken_file import with_own_ranks
from tokenmill.tokenizer.model import AddedToken, Merge, Merges, Model, encoder_of
from tokenmill.tokenizer.tokenizer import Tokenizer

_DROPPED, _OPENS, _CLOSES, _ADDED = 1, 2, 4, 8

_SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(0x2000 + i) for i in range(11)}
_SPACE_ENDS = frozenset(character.encode()[-1] for character in _SPACES)
"""The last bytes of white space."""

_ACROSS_SPACES = "superbpe"
_BEFORE_LETTERS_ALONE = "deepseek"
"""Every pattern with a name but `_ACROSS_SPACES` splits in front of each space that follows another character: in none does a match
have a space behind a character that is no white space, and none looks back, or ahead beyond white space. A test holds that for all
of them. In this one, a space with a letter beyond ASCII may be part of a longer match."""

Ids = npt.NDArray[np.unsignedinteger[Any]]


class Remapped(NamedTuple):
    """The new ids. `n_again`: the ids that had to be decoded and encoded again."""

    ids: pa.LargeListArray
    n_again: int


class Remapping:
    """Old ids to new ids, for a tokenizer and one that was trimmed from it. Safe to use from several threads."""

    def __init__(self, old: Tokenizer, new: Tokenizer, cache_bytes_max: int = 10**8) -> None:
        """Raises TokenizerError unless `new` is `old` without some tokens, apart from the ids."""
        new_of, dropped = _checked(old, new)
        assert old.model is not None
        assert new.model is not None
        self.id_type: type[np.unsignedinteger[Any]] = np.uint16 if new.id_max < 2**16 else np.uint32
        self._new_of = np.zeros(old.id_max + 1, self.id_type)
        self._new_of[list(new_of)] = list(new_of.values())
        self._flags = np.zeros(old.id_max + 1, np.uint8)
        self._flags[list(dropped)] |= _DROPPED
        self._flags[[added_token.id for added_token in old.model.added]] |= _ADDED
        pattern = name_of(old.model.steps)
        for id, token in old.model.tokens.items():
            self._flags[id] |= _OPENS * _opens(token, pattern) | _CLOSES * _closes(token)
        self._decoder, self._encoder = (encoder_of(model) for model in (old.model, new.model))
        self._encoder.limit_cache(cache_bytes_max)
        self._old_bytes, self._new_bytes = old.token_lengths, new.token_lengths

    def new_id(self, id: int | None) -> int | None:
        """The new id of a token that stays, such as a special token; None for None."""
        return None if id is None else int(self._new_of[id])

    def __call__(self, ids: pa.ListArray | pa.LargeListArray) -> Remapped:
        """The new ids of documents, one list for each. `ids`: what `encode_batch` of the old tokenizer gave, or a build wrote. An
        id that the old tokenizer lacks raises IndexError, or gives any other."""
        old: Ids = ids.flatten().to_numpy()
        offsets = np.concatenate([[0], np.cumsum(ids.value_lengths().to_numpy(), dtype=np.int64)])
        flags = self._flags[old]
        again = np.flatnonzero(flags & _DROPPED)
        new = self._new_of[old]
        if not len(again):
            return Remapped(pa.LargeListArray.from_arrays(offsets, new), 0)
        starts, ends = _windows(flags, offsets, again)
        values, lengths = self._again(old, starts, ends)
        return Remapped(_spliced(new, offsets, starts, ends, values, lengths), int((ends - starts).sum()))

    def _again(
        self, old: Ids, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> tuple[Ids, npt.NDArray[np.int64]]:
        """The new ids of these ranges of old ids, one after another, and how many each range has.

        Ranges are encoded as one text, which takes half the time, as long as each begins where a pre-token begins for certain.
        The bytes of the tokens then say where a range ends."""
        bounds = np.concatenate([[0], np.cumsum(ends - starts)])
        ids = old[_places(starts, bounds)]
        opens, closes = self._flags[ids[bounds[1:-1]]] & _OPENS, self._flags[ids[bounds[1:-1] - 1]] & _CLOSES
        firsts = np.concatenate([[0], 1 + np.flatnonzero(~(opens.astype(bool) & closes.astype(bool))), [len(starts)]])
        texts = self._decoder.decode_batch(pa.LargeListArray.from_arrays(bounds[firsts], ids), 1)
        values = self._encoder.encode_batch(texts, 1).flatten().to_numpy()
        bytes_before = np.concatenate([[0], np.cumsum(self._old_bytes[ids])])[bounds]
        places = np.searchsorted(np.cumsum(self._new_bytes[values]), bytes_before, "right")
        return values, np.diff(places)


def _windows(
    flags: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], again: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where the ranges begin and end that are to be encoded again: from end to end of pre-tokens, as far as these are known."""
    is_end = np.zeros(len(flags) + 1, bool)
    is_end[1:-1] = (flags[1:] & _OPENS).astype(bool) & (flags[:-1] & _CLOSES).astype(bool)
    is_end[1:-1] |= ((flags[1:] | flags[:-1]) & _ADDED).astype(bool)
    is_end[offsets] = True
    known = np.flatnonzero(is_end)
    first = np.searchsorted(known, again, "right") - 1
    first = first[np.concatenate([[True], np.diff(first) > 0])]
    return known[first], known[first + 1]


def _spliced(
    new: Ids,
    offsets: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    values: Ids,
    lengths: npt.NDArray[np.int64],
) -> pa.LargeListArray:
    """The ids with other ones in the place of some ranges. `values`: these, of `lengths`."""
    before, after = (np.concatenate([[0], np.cumsum(one)]) for one in (ends - starts, lengths))
    grown = after - before
    stays, is_old = np.ones(len(new), bool), np.ones(len(new) + grown[-1], bool)
    stays[_places(starts, before)] = False
    is_old[_places(starts + grown[:-1], after)] = False
    found = np.empty(len(is_old), new.dtype)
    found[is_old] = new[stays]
    found[~is_old] = values
    return pa.LargeListArray.from_arrays(offsets + grown[np.searchsorted(starts, offsets)], found)


def _places(starts: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The places in ranges that begin at `starts`. `bounds`: the sums of their lengths in front of each, and of all."""
    return np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], np.diff(bounds))


def _opens(token: bytes, pattern: str | None) -> bool:
    """Whether a pre-token certainly begins with this token where one that `_closes` is in front of it."""
    if pattern in (None, _ACROSS_SPACES) or token[:1] != b" ":
        return False
    return pattern != _BEFORE_LETTERS_ALONE or token[1:2].isalpha()


def _closes(token: bytes) -> bool:
    """Whether the last character of a text that ends with this token is certainly no white space."""
    for n in range(1, min(len(token), 4) + 1):
        try:
            return token[-n:].decode() not in _SPACES
        except UnicodeDecodeError:
            continue
    return token[-1] not in _SPACE_ENDS


def _checked(old: Tokenizer, new: Tokenizer) -> tuple[dict[int, int], set[int]]:
    """The new ids of the tokens that stay by their old ones, and the old ids of the dropped tokens. Raises TokenizerError."""
    if old.model is None or new.model is None:
        raise TokenizerError(
            "a tokenizer that is not byte-level was not trimmed by tokenmill. Encode the documents again."
        )
    old_model, new_model = with_own_ranks(old.model), with_own_ranks(new.model)
    ids = {token: id for id, token in new_model.tokens.items()}
    new_of = {id: ids[token] for id, token in old_model.tokens.items() if token in ids}
    dropped = old_model.tokens.keys() - new_of.keys()
    texts = {added.text: added.id for added in new_model.added}
    new_of |= {added.id: texts[added.text] for added in old_model.added if added.text in texts}
    what = (
        "it has others"
        if len(new_of) < new.vocab_size
        else _difference(old_model, new_model)
        or ("its merges are others" if _merges_differ(old_model, new_model, new_of, dropped) else None)
    )
    if what is not None:
        raise TokenizerError(
            f"the tokenizer {new.digest}",
            f"expected {old.digest} without some tokens; {what}.",
            "Take one that train_vocab.trim made of it, or encode the documents again.",
        )
    if Merges.of(old_model.merges).makes([added.id for added in old_model.added]):
        raise TokenizerError(
            f"the tokenizer {old.digest}",
            "merges make an added token, so ids do not say where it stood in the text.",
            "Encode the documents again.",
        )
    return new_of, dropped


def _difference(old: Model, new: Model) -> str | None:
    """Says in what beside tokens, merges and ids the tokenizers differ; None if they do not."""
    for name in ("steps", "ignore_merges", "nfc", "add_prefix_space"):
        if getattr(old, name) != getattr(new, name):
            return f"its {name} is another"
    one, other = (sorted((replace(added, id=0) for added in model.added), key=_text) for model in (old, new))
    return "its added tokens are others" if one != other else None


def _text(one: AddedToken) -> str:
    return one.text


def _merges_differ(old: Model, new: Model, new_of: Mapping[int, int], dropped: Collection[int]) -> bool:
    """Whether the new merges are others than the old ones that make no dropped token, in their order."""
    table = np.zeros(max(*old.tokens, *new_of) + 1, np.uint32)
    table[list(new_of)] = list(new_of.values())
    before = _by_rank(old)
    before = before[:, ~np.isin(before[-1], list(dropped))]
    return bool(np.isin(before, list(dropped)).any()) or not np.array_equal(table[before], _by_rank(new))


def _by_rank(model: Model) -> npt.NDArray[np.uint32]:
    """The parts and the token of each merge, as rows of a table, in the order of the ranks."""
    rows = np.frombuffer(Merges.of(model.merges).rows, "<u4").reshape(-1, len(Merge._fields))
    left, right, _, token = rows[np.argsort(rows[:, Merge._fields.index("rank")], kind="stable")].T
    return np.stack([left, right, token])
