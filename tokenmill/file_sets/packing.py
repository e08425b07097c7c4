"""Packs documents into sequences: chooses which segments make each sequence."""

from bisect import bisect_left, insort
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Mode: TypeAlias = Literal["none", "concat", "best_fit"]
Long: TypeAlias = Literal["split", "cut", "drop"]
Integers: TypeAlias = npt.NDArray[np.int64]

WINDOW_DOCUMENTS = 1 << 13
"""`best_fit` packs this many documents at a time."""
# The tokens of a window are held in memory. Of a million documents of 1,000 tokens (lognormal, sigma 1.2), 0.02 % of the tokens of
# sequences of 2,048 are padding, and 0.06 % of 8,192. With windows of 65,536 documents it is 0.003 % and 0.007 %, and packing
# takes half the time, but 65,536 documents of 10,000 tokens have 2.6 GB.


class Segments(NamedTuple):
    """The segments of sequences: int64 arrays with an element for each, ordered by sequence, then by document.

    `sequence`: its number, from 0. `document`: the index of the document. `start`: the position of its first token in that
    document, from 0. `n_tokens`: at least 1.
    """

    sequence: Integers
    document: Integers
    start: Integers
    n_tokens: Integers


class Packing(NamedTuple):
    """The result of packing documents.

    `n_padding`: the tokens missing to fill all sequences. `n_split_documents`: documents in more than one segment. `n_cut_tokens`:
    those that long="cut" leaves out. `n_dropped_documents`, `n_dropped_tokens`: what long="drop" leaves out. `n_empty_documents`:
    documents without a token; they are in no sequence.
    """

    segments: Segments
    n_sequences: int
    n_padding: int
    n_split_documents: int
    n_cut_tokens: int
    n_dropped_documents: int
    n_dropped_tokens: int
    n_empty_documents: int


def pack(lengths: Integers, length: int, mode: Mode, long: Long) -> Packing:
    """The sequences of at most `length` tokens that documents of these lengths become.

    `none`: each document is a sequence. `concat`: the documents stand one behind another and are cut at every `length` tokens;
    only the last sequence is shorter. `best_fit`: no document that fits is cut. The longest document is placed first, of equal
    ones that with the lowest index. It goes into the sequence with the least room that holds it, of equal ones into that where a
    document was placed last, or else into a new one. Each window of WINDOW_DOCUMENTS documents is packed by itself, so packing
    windows one by one gives the same sequences.

    Sequences are in the order of their first segments, by document and start. Documents are in order within a sequence too. In
    the order of placing, the longest would come first in every sequence, and a model could learn lengths from positions.

    `long`: what becomes of a document of more than `length` tokens. `split`: as many sequences of `length` tokens as it fills, and
    a rest that is treated as a document. `cut`: its first `length` tokens are kept. `drop`: it is left out.

    Raises ValueError for a length below 1, lengths below 0, and for `concat` with another `long` than `split`.
    Source: best-fit packing, Ding et al., Fewer Truncations Improve Language Modeling (2024).

    >>> packing = pack(np.array([5, 2, 3, 4]), 7, "best_fit", "split")
    >>> packing.segments.sequence.tolist(), packing.segments.document.tolist(), packing.n_padding
    ([0, 0, 1, 1], [0, 1, 2, 3], 0)
    """
    if length < 1:
        raise ValueError(f"the length of sequences: expected 1 or more; found {length}.")
    if len(lengths) and lengths.min() < 0:
        i = int(lengths.argmin())
        raise ValueError(f"document {i}: expected 0 or more tokens; found {lengths[i]}.")
    if mode == "concat" and long != "split":
        raise ValueError(f"concat cuts documents wherever a sequence ends: expected long=split; found long={long}.")
    is_long = lengths > length
    kept = {"split": lengths, "cut": np.minimum(lengths, length), "drop": np.where(is_long, 0, lengths)}[long]
    match mode:
        case "none":
            segments = _apart(kept, length)
        case "concat":
            segments = _concatenated(kept, length)
        case "best_fit":
            segments = _best_fit(kept, length)
    n_sequences = int(segments.sequence[-1]) + 1 if len(segments.sequence) else 0
    n_left_out = int(lengths.sum() - kept.sum())
    return Packing(
        segments,
        n_sequences,
        n_padding=n_sequences * length - int(segments.n_tokens.sum()),
        n_split_documents=int((np.bincount(segments.document) > 1).sum()),
        n_cut_tokens=n_left_out if long == "cut" else 0,
        n_dropped_documents=int(is_long.sum()) if long == "drop" else 0,
        n_dropped_tokens=n_left_out if long == "drop" else 0,
        n_empty_documents=int((lengths == 0).sum()),
    )


class PairSides(NamedTuple):
    """The two sides of pairs, each a prompt and an answer: int64 arrays with an element for each pair.

    `chosen`, `rejected`: the tokens of a side up to the end of its answer. Of a pair whose answers are equal, `chosen` are all
    tokens and `rejected` is 0. `start`: where the rejected side begins in the document. `n_same`: the tokens that both sides begin
    with.
    """

    chosen: Integers
    rejected: Integers
    start: Integers
    n_same: Integers


def pack_pairs(sides: PairSides, length: int, long: Long) -> tuple[Packing, int, int]:
    """A sequence of two segments, the sides, for each pair. Also gives how many pairs are longer than `length` or have equal sides,
    and how many of these are left out because their sides are equal or would be.

    `long`: what becomes of a pair of which a side has more than `length` tokens. `cut`: the first `length` tokens of each side are
    kept, unless that makes them equal, as where the prompt alone fills them. `drop`: the pair is left out.

    >>> sides = PairSides(*(np.array(one) for one in ([4, 9, 3, 5], [5, 7, 4, 0], [4, 9, 3, 5], [2, 6, 2, 0])))
    >>> packing, n_lost, n_equal = pack_pairs(sides, 6, "cut")
    >>> [one.tolist() for one in packing.segments], n_lost, n_equal
    ([[0, 0, 1, 1], [0, 0, 2, 2], [0, 4, 0, 3], [4, 5, 3, 4]], 2, 2)
    """
    lengths = np.stack([sides.chosen, sides.rejected])
    kept = np.minimum(lengths, length)
    is_long = (lengths > length).any(axis=0)
    is_equal = sides.rejected == 0
    if long == "cut":
        is_equal |= (kept[0] == kept[1]) & (sides.n_same >= kept[0])
    is_out = is_equal if long == "cut" else is_equal | is_long
    document = np.flatnonzero(~is_out)
    start = np.stack([np.zeros_like(sides.start), sides.start])
    segments = Segments(
        np.repeat(np.arange(len(document)), 2),
        np.repeat(document, 2),
        start[:, document].T.reshape(-1),
        kept[:, document].T.reshape(-1),
    )
    packing = Packing(
        segments,
        len(document),
        n_padding=0,
        n_split_documents=0,
        n_cut_tokens=int((lengths - kept)[:, document].sum()),
        n_dropped_documents=int(is_out.sum()),
        n_dropped_tokens=int(lengths[:, is_out].sum()),
        n_empty_documents=0,
    )
    return packing, int((is_long | is_equal).sum()), int(is_equal.sum())


def n_cut_answers(segments: Segments, trained_ends: Integers) -> int:
    """The number of conversations that lose a trained token. `trained_ends`: the position after each one's last trained token, 0
    without one.

    >>> segments = pack(np.array([5, 2, 3]), 3, "best_fit", "cut").segments
    >>> n_cut_answers(segments, np.array([4, 2, 0])), n_cut_answers(segments, np.array([3, 2, 3]))
    (1, 0)
    """
    # What is kept of a document begins with its first token, whatever the policy.
    kept = np.bincount(segments.document, segments.n_tokens, minlength=len(trained_ends))
    return int((trained_ends > kept).sum())


def part(segments: Segments, first: int, end: int) -> tuple[range, Segments]:
    """The segments of sequences `first` to `end` - 1, and the range of their documents.

    The sequences are numbered from 0 again, and the documents from the beginning of the range.

    >>> documents, segments = part(pack(np.array([4, 2, 3]), 5, "concat", "split").segments, 1, 2)
    >>> documents, segments.document.tolist(), segments.start.tolist()
    (range(1, 3), [0, 1], [1, 0])
    """
    a, b = np.searchsorted(segments.sequence, [first, end])
    sequence, document, start, n_tokens = (column[a:b] for column in segments)
    documents = range(int(document.min()), int(document.max()) + 1) if a < b else range(0)
    return documents, Segments(sequence - first, document - documents.start, start, n_tokens)


def _apart(lengths: Integers, length: int) -> Segments:
    """Makes each document a sequence, or several if it is longer than `length`."""
    document, i = _repeated(-(-lengths // length))
    start = i * length
    return Segments(np.arange(len(document)), document, start, np.minimum(lengths[document] - start, length))


def _concatenated(lengths: Integers, length: int) -> Segments:
    """Concatenates the documents, and cuts at every `length` tokens."""
    ends = np.cumsum(lengths)
    firsts = ends - lengths
    n_segments = (ends - 1) // length - firsts // length + 1
    document, i = _repeated(np.where(lengths, n_segments, 0))
    sequence = (firsts // length)[document] + i
    start = np.maximum(sequence * length - firsts[document], 0)
    end = np.minimum((sequence + 1) * length - firsts[document], lengths[document])
    return Segments(sequence, document, start, end - start)


def _repeated(times: Integers) -> tuple[Integers, Integers]:
    """Repeats each index `times` times; also numbers its repeats from 0."""
    index = np.repeat(np.arange(len(times)), times)
    return index, np.arange(len(index)) - (np.cumsum(times) - times)[index]


def _best_fit(lengths: Integers, length: int) -> Segments:
    """Packs the documents of each window by best fit."""
    columns: list[list[Integers]] = [[], [], [], []]
    n_sequences = 0
    for first in range(0, len(lengths), WINDOW_DOCUMENTS):
        sequence, document, start, n_tokens = _apart(lengths[first : first + WINDOW_DOCUMENTS], length)
        if not len(sequence):
            continue
        rests = np.flatnonzero(n_tokens < length)
        sequence[rests] = len(sequence) + _placed(n_tokens[rests], length)
        # The segments are in the order of documents and starts here. So the first one of a sequence numbers it.
        _, firsts, numbers = np.unique(sequence, return_index=True, return_inverse=True)
        sequence = np.argsort(np.argsort(firsts))[numbers]
        by_sequence = np.argsort(sequence, kind="stable")
        for column, values in zip(columns, (sequence + n_sequences, document + first, start, n_tokens), strict=True):
            column.append(values[by_sequence])
        n_sequences += len(firsts)
    nothing = np.empty(0, np.int64)
    return Segments(*(np.concatenate([nothing, *column]) for column in columns))


def _placed(sizes: Integers, length: int) -> Integers:
    """The bin of each item, by best fit decreasing into bins of `length`; sizes are 1 to `length`.

    Items of the same size are placed together. A bin with the least room that holds one takes as many as it holds, since it has
    still less room after each. So there are at most a few steps for each distinct size, however many items there are.
    """
    by_size = np.argsort(-sizes, kind="stable")
    distinct, counts = np.unique(-sizes, return_counts=True)
    bins_with: dict[int, list[int]] = {}  # the bins by remaining room, in the order in which they reached it
    rooms: list[int] = []  # the sorted keys of bins_with
    placed: list[int] = []  # the bin of each item, in the order of placing
    n_bins = 0

    def give_room(room: int, bins: list[int]) -> None:
        if not room or not bins:
            return
        if room not in bins_with:
            insort(rooms, room)
            bins_with[room] = []
        bins_with[room] += bins

    for size, n_items in zip((-distinct).tolist(), counts.tolist(), strict=True):
        n_left = n_items
        while n_left:
            i = bisect_left(rooms, size)
            room = rooms[i] if i < len(rooms) else length
            n_each = room // size
            n_wanted = -(-n_left // n_each)
            if i < len(rooms):
                bins = bins_with[room]
                taken = bins[-n_wanted:][::-1]
                del bins[-n_wanted:]
                if not bins:
                    del rooms[i], bins_with[room]
            else:
                taken = list(range(n_bins, n_bins + n_wanted))
                n_bins += n_wanted
            items = [one for one in taken for _ in range(n_each)][:n_left]
            placed += items
            n_left -= len(items)
            n_in_last = len(items) - (len(taken) - 1) * n_each
            give_room(room - n_each * size, taken[:-1])
            give_room(room - n_in_last * size, taken[-1:])
    found = np.empty(len(sizes), np.int64)
    found[by_size] = placed
    return found
