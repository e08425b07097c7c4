"""Finds a text or a token in a few items at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.errors import ParamsError
from tokenmill.features.view.vocabulary import Vocabulary, bytes_as_shown
from tokenmill_reader.array_types import Ids

Hits = Iterator[dict[str, Any]]

_N_AROUND = 12  # tokens before and behind a token that was found
_BYTES_AROUND = 60  # before and behind a text that was found


def finder(vocabulary: Vocabulary, kind: str, wanted: str) -> Callable[[list[Ids], int], Hits]:
    """The function that finds the hits in some items, given the number of the first of them. `kind`: text, token or token id.
    Raises ParamsError if nothing can be found so."""
    if kind == "text":
        if vocabulary.tokenizer is None:
            raise ParamsError("search", "a search for a text needs the dataset's tokenizer. Name it with --tokenizer.")
        return lambda lists, first: _with_text(vocabulary, lists, first, wanted.encode())
    if kind == "token":
        ids = [id for id, raw in vocabulary.bytes.items() if raw == wanted.encode()]
        if not ids:
            raise ParamsError("search", f"no token has exactly the text {wanted!r}.")
    elif wanted.isascii() and wanted.isdecimal() and len(wanted) < 10:
        ids = [int(wanted)]
    else:
        raise ParamsError("search", f"expected the id of a token, a number; found {wanted[:40]!r}.")
    return lambda lists, first: _with_token(vocabulary, lists, first, ids)


def _with_text(vocabulary: Vocabulary, lists: list[Ids], first: int, wanted: bytes) -> Hits:
    assert vocabulary.tokenizer is not None
    ends = np.cumsum([0, *map(len, lists)])
    texts = vocabulary.tokenizer.decode_batch(pa.LargeListArray.from_arrays(ends, pa.array(np.concatenate(lists))))
    places = pc.find_substring(texts, pattern=wanted).to_numpy()
    for k in np.flatnonzero(places >= 0).tolist():
        text, place = texts[k].as_py(), int(places[k])
        end = place + len(wanted)
        token_ends = np.cumsum(vocabulary.tokenizer.token_lengths[lists[k]])
        # Where the tokens do not add up to the text, their places in it are not known.
        position = int(token_ends.searchsorted(place, side="right")) if token_ends[-1] == len(text) else 0
        around = text[max(0, place - _BYTES_AROUND) : place], wanted, text[end : end + _BYTES_AROUND]
        is_cut = place > _BYTES_AROUND, len(text) > end + _BYTES_AROUND
        yield _hit(first + k, position, "", [bytes_as_shown(raw) for raw in around], is_cut)


def _with_token(vocabulary: Vocabulary, lists: list[Ids], first: int, wanted: list[int]) -> Hits:
    for k, ids in enumerate(lists):
        places = np.flatnonzero(np.isin(ids, wanted))
        if len(places):
            token_position = int(places[0])
            around = (
                ids[max(0, token_position - _N_AROUND) : token_position],
                ids[token_position : token_position + 1],
                ids[token_position + 1 : token_position + 1 + _N_AROUND],
            )
            texts = ["".join(map(vocabulary.shown, part.tolist())) for part in around]
            is_cut = token_position > _N_AROUND, len(ids) > token_position + 1 + _N_AROUND
            yield _hit(
                first + k, token_position, f" and {len(places) - 1:,} more" if len(places) > 1 else "", texts, is_cut
            )


def _hit(i: int, position: int, further_hits: str, around: list[str], is_cut: tuple[bool, bool]) -> dict[str, Any]:
    """`is_cut`: whether the item has more before and behind the texts `around`."""
    before, match, behind = around
    texts = ["…" * is_cut[0] + before, match, behind + "…" * is_cut[1]]
    return {"i": i, "head": f"{i:,} · token {position:,}{further_hits}", "position": position, "around": texts}
