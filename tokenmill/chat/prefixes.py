"""Computes masks for templates without generation tags, by encoding the conversation up to each message."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenmill.chat.locator import AnswerSpan
from tokenmill.chat.rendering import Rendering
from tokenmill.chat.segments import EncodedTexts, SegmentEncoder
from tokenmill.chat.token_ranges import Flags, between
from tokenmill.errors import ChatError

_CHARACTERS_AT_ONCE = 4_000_000


class _Prefix(NamedTuple):
    """A position `at` in the text of conversation `i`. `text`: the text before it, from the nearest special token on. `n_before`:
    the number of ids before that token."""

    i: int
    at: int
    n_before: int
    text: Rendering


def flags_by_prefixes(encoder: SegmentEncoder, renderings: Sequence[Rendering], encoded: EncodedTexts) -> Flags:
    """Flags 1 for the ids that each message adds to the conversation before it, else 0.

    A token that joins white space before and in a message belongs to the message. Otherwise raises ChatError if the ids of a prefix
    are not a prefix of the whole conversation's ids. Ids before a special token do not depend on what follows it, so only the text
    after the nearest one is encoded again.
    """
    n_ids: dict[tuple[int, int], int] = {}
    for cuts in _at_once(encoder, renderings, encoded):
        begins = encoder.encode([cut.text for cut in cuts], [cut.i for cut in cuts])
        for j, cut in enumerate(cuts):
            ids = begins.ids[begins.offsets[j] : begins.offsets[j + 1]]
            first = encoded.offsets[cut.i] + cut.n_before
            whole = encoded.ids[first : min(first + len(ids), encoded.offsets[cut.i + 1])]
            n_same = len(ids) if np.array_equal(ids, whole) else _n_before_blank(encoder, ids, whole)
            if n_same is None or (n_same < len(ids) and any(cut.at == part.end for part in renderings[cut.i].parts)):
                raise _no_boundary(renderings[cut.i], cut.at, cut.i)
            n_ids[cut.i, cut.at] = cut.n_before + n_same
    firsts: list[Any] = []
    stops: list[Any] = []
    for i, one in enumerate(renderings):
        start = encoded.offsets[i]
        known = {0: 0, len(one.text): encoded.offsets[i + 1] - start}
        for part in one.parts:
            for found, at in ((firsts, part.start), (stops, part.end)):
                found.append(start + (known[at] if at in known else n_ids[i, at]))
    return between(firsts, stops, len(encoded.ids))


def _n_before_blank(encoder: SegmentEncoder, ids: Any, whole: Any) -> int | None:
    """The number of ids that a prefix and the whole share before white space that is other tokens in the whole; None if it is not
    only white space that differs."""
    differ = np.flatnonzero(ids[: len(whole)] != whole)
    if not len(differ):
        return None
    n_same = int(differ[0])
    rest, blank = encoder.decode(ids[n_same:]), encoder.decode(whole[n_same : n_same + 1])
    return n_same if rest.isspace() and blank.isspace() and blank.startswith(rest) else None


def _at_once(
    encoder: SegmentEncoder, renderings: Sequence[Rendering], encoded: EncodedTexts
) -> Iterator[list[_Prefix]]:
    """The cuts of all conversations, in groups whose texts take little memory."""
    cuts: list[_Prefix] = []
    n_characters = 0
    for i, one in enumerate(renderings):
        for cut in _cuts(encoder, one, encoded.ids[encoded.offsets[i] : encoded.offsets[i + 1]], i):
            if cuts and n_characters + len(cut.text.text) > _CHARACTERS_AT_ONCE:
                yield cuts
                cuts, n_characters = [], 0
            cuts.append(cut)
            n_characters += len(cut.text.text)
    yield cuts


def _cuts(encoder: SegmentEncoder, rendering: Rendering, ids: Any, index: int) -> Iterator[_Prefix]:
    places = sorted(
        {
            position
            for part in rendering.parts
            for position in (part.start, part.end)
            if 0 < position < len(rendering.text)
        }
    )
    special, id_places = encoder.special_places(rendering, ids) if places else ([], [])
    ends = [segment.end for segment in special]
    for position in places:
        k = bisect_right(ends, position) - 1
        start, n_before = (special[k].start, id_places[k]) if k >= 0 else (0, 0)
        guarded = None if rendering.guarded is None else rendering.guarded[start:position]
        yield _Prefix(index, position, n_before, Rendering(rendering.text[start:position], guarded, []))


def _no_boundary(rendering: Rendering, position: int, index: int) -> ChatError:
    part: AnswerSpan = next(part for part in rendering.parts if position in (part.start, part.end))
    which = "begins" if position == part.start else "ends"
    before, behind = rendering.text[max(0, position - 15) : position], rendering.text[position : position + 15]
    return ChatError(
        index,
        f"message {part.message} (assistant): it {which} inside a token, at character {position:,} of the rendered text "
        f"({before!r}, then {behind!r}), so which tokens are learned is not "
        "known. Put {% generation %} and {% endgeneration %} around what an assistant writes in the template.",
    )
