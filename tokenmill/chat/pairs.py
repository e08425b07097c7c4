"""Cuts pairs of answers into their two sides for an encoder, and joins what it makes of them into one row for each pair."""

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.errors import ChatError


class _RawPair(msgspec.Struct):
    """A pair whose messages keep their JSON. The last message is the chosen answer."""

    messages: list[msgspec.Raw]
    rejected: msgspec.Raw
    tools: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(_RawPair)
_encode = msgspec.json.Encoder().encode
_SIDES = ("chosen", "rejected")
_BORDER_TOKENS_MAX = 2
"""The most tokens of a prompt that may differ before two answers, because the answers begin with other white space."""


def sides_of(pairs: pa.LargeStringArray) -> pa.LargeStringArray:
    """The two conversations of each pair, one behind another: that with the chosen answer, and that with the rejected one. Raises
    ChatError for a conversation that is no pair."""
    return pa.array([side for i, text in enumerate(pairs.to_pylist()) for side in _sides(text, i)], pa.large_string())


def _sides(text: str, index: int) -> Iterator[str]:
    try:
        pair = _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise ChatError(index, f"expected the JSON of a pair; found {text!r:.60}: {error}.") from None
    for answer in (pair.messages[-1], pair.rejected):
        side = {"messages": [*pair.messages[:-1], answer]}
        yield _encode(side if pair.tools is msgspec.UNSET else {**side, "tools": pair.tools}).decode()


def of_side(error: ChatError) -> ChatError:
    """The error for a pair, given that for one of `sides_of`."""
    return ChatError(error.index // 2, f"{_SIDES[error.index % 2]}: {error}")


def joined(sides: pa.LargeListArray) -> pa.LargeListArray:
    """Makes one list of the two of each pair, without a copy.

    >>> joined(pa.array([[1], [2, 3], [4], [5]], pa.large_list(pa.int8()))).to_pylist()
    [[1, 2, 3], [4, 5]]
    """
    return pa.LargeListArray.from_arrays(pa.array(sides.offsets.to_numpy()[::2]), sides.values)


def joined_texts(sides: pa.LargeStringArray) -> pa.LargeStringArray:
    """Makes one text of the two of each pair."""
    chosen = pa.array(range(0, len(sides), 2), pa.int64())
    return pc.binary_join_element_wise(
        sides.take(chosen), sides.take(pc.add(chosen, 1)), pa.scalar("", pa.large_string())
    )


def answers_of(input_ids: pa.LargeListArray, loss_mask: pa.LargeListArray) -> pa.LargeListArray:
    """The mask of `sides_of` with 1 at both answers of each pair, which follow equal tokens. A token that joins the end of the
    prompt and white space of one answer belongs to the answers, as do the tokens of the other side from there on. Where the
    template makes the same tokens of both answers, none is trained.

    Raises ChatError, with the pair's number, unless the trained tokens of each side are one stretch behind one prompt.
    """
    ids, mask = input_ids.values.to_numpy(), loss_mask.values.to_numpy().copy()
    bounds = input_ids.offsets.to_numpy().tolist()
    for i in range(len(input_ids) // 2):
        sides = [slice(*bounds[at : at + 2]) for at in (2 * i, 2 * i + 1)]
        stretches = [_stretch(mask[side]) for side in sides]
        for name, side, (first, stop) in zip(_SIDES, sides, stretches, strict=True):
            if not 0 < first < stop or not mask[side][first:stop].all():
                raise ChatError(
                    i,
                    f"{name}: expected an answer that is trained in one piece behind a prompt; found tokens of it that are not "
                    "trained, or no prompt. Take another template, or remove encode.chat.train and keys such as weight.",
                )
        chosen_prompt, rejected_prompt = (ids[side][:first] for side, (first, _) in zip(sides, stretches, strict=True))
        n = min(len(chosen_prompt), len(rejected_prompt))
        differ = np.flatnonzero(chosen_prompt[:n] != rejected_prompt[:n])
        n_prompt = int(differ[0]) if len(differ) else n
        if not n_prompt or max(len(chosen_prompt), len(rejected_prompt)) - n_prompt > _BORDER_TOKENS_MAX:
            raise ChatError(
                i,
                "the prompt becomes other tokens in front of the chosen answer than in front of the rejected one, so the sides do "
                "not share it. Take another template, or drop the pair.",
            )
        for side, (first, _) in zip(sides, stretches, strict=True):
            mask[side][n_prompt:first] = 1
        if np.array_equal(*(ids[side][n_prompt:stop] for side, (_, stop) in zip(sides, stretches, strict=True))):
            for side in sides:
                mask[side] = 0
    return pa.LargeListArray.from_arrays(loss_mask.offsets, pa.array(mask))


def _stretch(mask: npt.NDArray[np.int8]) -> tuple[int, int]:
    """The places of the first trained token of a mask and behind the last one; 0, 0 if none is."""
    places = np.flatnonzero(mask)
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
