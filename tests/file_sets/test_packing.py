"""Sequences hold every token that is to be kept once, no document that fits is cut, and best fit is what a naive one gives."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.file_sets.packing import WINDOW_DOCUMENTS, Long, Mode, Packing, Segments, pack, part

Segment = tuple[int, int, int]  # document, start, n_tokens
LENGTHS = st.lists(st.integers(0, 12) | st.integers(0, 40), max_size=40)
WAYS = [(mode, long) for mode in get_args(Mode) for long in get_args(Long) if mode != "concat" or long == "split"]


def packed(lengths: Sequence[int], length: int, mode: Mode, long: Long = "split") -> Packing:
    return pack(np.array(lengths, np.int64), length, mode, long)


def listed(packing: Packing) -> list[list[Segment]]:
    found: list[list[Segment]] = [[] for _ in range(packing.n_sequences)]
    for sequence, *segment in zip(*(column.tolist() for column in packing.segments), strict=True):
        found[sequence].append((segment[0], segment[1], segment[2]))
    return found


def naive_best_fit(lengths: Sequence[int], length: int) -> list[list[Segment]]:
    """One document after another, the longest first, into the sequence with the least room, the one used last of equals."""
    segments = [
        (document, start, min(length, n - start)) for document, n in enumerate(lengths) for start in range(0, n, length)
    ]
    bins: list[list[Segment]] = []
    rooms: list[tuple[int, int, int]] = []  # room, minus the time of the last placement, bin
    for time, segment in enumerate(sorted(segments, key=lambda segment: -segment[2])):
        i = bisect_left(rooms, (segment[2], -len(segments), 0))
        if i < len(rooms):
            room, _, bin = rooms.pop(i)
        else:
            room, bin = length, len(bins)
            bins.append([])
        bins[bin].append(segment)
        insort(rooms, (room - segment[2], -time, bin))
    return sorted(map(sorted, bins))


def naive_concat(lengths: Sequence[int], length: int) -> list[list[Segment]]:
    tokens = [(document, at) for document, n in enumerate(lengths) for at in range(n)]
    found = []
    for first in range(0, len(tokens), length):
        sequence = tokens[first : first + length]
        documents = sorted({document for document, _ in sequence})
        of = {document: [at for other, at in sequence if other == document] for document in documents}
        found.append([(document, of[document][0], len(of[document])) for document in documents])
    return found


def test_none_gives_each_document_a_sequence_and_a_long_one_several() -> None:
    packing = packed([3, 9, 0, 4], 4, "none")
    assert listed(packing) == [[(0, 0, 3)], [(1, 0, 4)], [(1, 4, 4)], [(1, 8, 1)], [(3, 0, 4)]]
    assert packing[1:] == (5, 4, 1, 0, 0, 0, 1)
    assert all(column.dtype == np.int64 for column in packing.segments)


def test_concat_cuts_the_joined_documents_at_every_length() -> None:
    packing = packed([3, 0, 6, 1, 3], 4, "concat")
    assert listed(packing) == [[(0, 0, 3), (2, 0, 1)], [(2, 1, 4)], [(2, 5, 1), (3, 0, 1), (4, 0, 2)], [(4, 2, 1)]]
    assert packing[1:] == (4, 3, 2, 0, 0, 0, 1)
    assert listed(packed([4, 4], 4, "concat")) == [[(0, 0, 4)], [(1, 0, 4)]]
    assert listed(packed([0, 8, 0], 4, "concat")) == [[(1, 0, 4)], [(1, 4, 4)]]


def test_best_fit_puts_the_longest_document_first_where_the_least_room_holds_it() -> None:
    # 7 and 6 open a sequence each, which leaves 3 and 4. The 4 goes to the 4, the 3 to the 3, and the 2 to a new one.
    packing = packed([2, 7, 3, 6, 4], 10, "best_fit")
    assert listed(packing) == [[(0, 0, 2)], [(1, 0, 7), (2, 0, 3)], [(3, 0, 6), (4, 0, 4)]]
    assert packing[1:] == (3, 8, 0, 0, 0, 0, 0)


def test_best_fit_packs_the_rest_of_a_long_document_like_a_document() -> None:
    packing = packed([2, 13, 5], 5, "best_fit")
    assert listed(packing) == [[(0, 0, 2), (1, 10, 3)], [(1, 0, 5)], [(1, 5, 5)], [(2, 0, 5)]]
    assert packing[1:] == (4, 0, 1, 0, 0, 0, 0)


def test_the_document_of_the_lowest_index_is_first_of_equal_ones_and_the_sequence_that_was_used_last() -> None:
    assert listed(packed([3, 3, 3, 1, 1], 4, "best_fit")) == [
        [(0, 0, 3)],
        [(1, 0, 3), (4, 0, 1)],
        [(2, 0, 3), (3, 0, 1)],
    ]
    assert listed(packed([2, 2, 2, 2, 2], 4, "best_fit")) == [
        [(0, 0, 2), (1, 0, 2)],
        [(2, 0, 2), (3, 0, 2)],
        [(4, 0, 2)],
    ]


def test_cut_keeps_the_beginning_of_a_long_document() -> None:
    packing = packed([2, 13, 5, 0], 5, "best_fit", "cut")
    assert listed(packing) == [[(0, 0, 2)], [(1, 0, 5)], [(2, 0, 5)]]
    assert packing[1:] == (3, 3, 0, 8, 0, 0, 1)


def test_drop_leaves_a_long_document_out() -> None:
    packing = packed([2, 13, 5, 6, 0], 5, "none", "drop")
    assert listed(packing) == [[(0, 0, 2)], [(2, 0, 5)]]
    assert packing[1:] == (2, 3, 0, 0, 2, 19, 1)


@pytest.mark.parametrize(("mode", "long"), WAYS)
def test_no_documents_make_no_sequence(mode: Mode, long: Long) -> None:
    for lengths in ([], [0, 0]):
        packing = packed(lengths, 4, mode, long)
        assert listed(packing) == []
        assert packing[1:] == (0, 0, 0, 0, 0, 0, len(lengths))
        assert all(column.dtype == np.int64 for column in packing.segments)


@given(LENGTHS, st.integers(1, 16))
def test_best_fit_is_that_of_one_document_after_another(lengths: list[int], length: int) -> None:
    assert listed(packed(lengths, length, "best_fit")) == naive_best_fit(lengths, length)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(16, 300))
def test_best_fit_of_many_documents_is_that_of_one_after_another(seed: int, length: int) -> None:
    lengths = np.random.default_rng(seed).geometric(0.03, 2000).tolist()
    assert listed(packed(lengths, length, "best_fit")) == naive_best_fit(lengths, length)


@given(LENGTHS, st.integers(1, 16))
def test_concat_is_the_joined_documents_cut(lengths: list[int], length: int) -> None:
    assert listed(packed(lengths, length, "concat")) == naive_concat(lengths, length)


@given(LENGTHS, st.integers(1, 16), st.sampled_from(WAYS))
def test_every_token_that_is_kept_is_in_one_sequence_and_the_others_are_counted(
    lengths: list[int], length: int, way: tuple[Mode, Long]
) -> None:
    mode, long = way
    packing = packed(lengths, length, mode, long)
    kept = [
        (document, at)
        for document, n in enumerate(lengths)
        for at in range(n if long == "split" else min(n, length))
        if long != "drop" or n <= length
    ]
    found = listed(packing)
    tokens = [(document, at) for one in found for document, start, n in one for at in range(start, start + n)]
    assert sorted(tokens) == kept
    assert packing.n_cut_tokens + packing.n_dropped_tokens == sum(lengths) - len(kept)
    assert packing.n_cut_tokens == 0 or long == "cut"
    assert packing.n_dropped_documents == (sum(n > length for n in lengths) if long == "drop" else 0)
    assert packing.n_empty_documents == lengths.count(0)
    assert packing.n_padding == sum(length - sum(n for *_, n in one) for one in found)
    documents = [document for one in found for document, *_ in one]
    assert packing.n_split_documents == sum(documents.count(document) > 1 for document in set(documents))
    for one in found:
        assert 0 < sum(n for *_, n in one) <= length
        assert all(n > 0 for *_, n in one)
        assert one == sorted(one)
    assert [one[0] for one in found] == sorted(one[0] for one in found)


@given(LENGTHS, st.integers(1, 16), st.sampled_from(["none", "best_fit"]), st.sampled_from(get_args(Long)))
def test_no_document_that_fits_is_cut(lengths: list[int], length: int, mode: Mode, long: Long) -> None:
    packing = packed(lengths, length, mode, long)
    for one in listed(packing):
        for document, start, n in one:
            if lengths[document] <= length:
                assert (start, n) == (0, lengths[document])
            elif long == "split":
                assert start % length == 0
                assert n == min(length, lengths[document] - start)
    n_long = sum(n > length for n in lengths)
    assert packing.n_split_documents == (n_long if long == "split" else 0)


def drawn(n: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).geometric(0.01, n) - 1


def test_windows_are_packed_apart() -> None:
    lengths = drawn(2 * WINDOW_DOCUMENTS + 1000)
    whole = pack(lengths, 256, "best_fit", "split")
    windows = [lengths[first : first + WINDOW_DOCUMENTS] for first in range(0, len(lengths), WINDOW_DOCUMENTS)]
    apart = [pack(window, 256, "best_fit", "split") for window in windows]
    firsts = np.cumsum([0, *(one.n_sequences for one in apart)])
    shifts = {"sequence": firsts.tolist(), "document": [0, WINDOW_DOCUMENTS, 2 * WINDOW_DOCUMENTS]}
    for column in Segments._fields:
        of_windows = [getattr(one.segments, column) for one in apart]
        shifted = [of_windows[i] + shifts.get(column, [0, 0, 0])[i] for i in range(3)]
        assert np.array_equal(getattr(whole.segments, column), np.concatenate(shifted))
    assert list(whole[1:]) == [sum(numbers) for numbers in zip(*(one[1:] for one in apart), strict=True)]


def test_a_whole_window_is_packed_as_one_document_after_another() -> None:
    lengths = drawn(WINDOW_DOCUMENTS)
    assert listed(pack(lengths, 256, "best_fit", "split")) == naive_best_fit(lengths.tolist(), 256)


def test_best_fit_wastes_little_where_short_documents_are_many() -> None:
    packing = pack(drawn(WINDOW_DOCUMENTS), 256, "best_fit", "split")
    assert packing.n_padding / (packing.n_sequences * 256) < 0.0005


@given(LENGTHS, st.integers(1, 16), st.sampled_from(WAYS), st.data())
def test_a_part_has_the_segments_of_its_sequences(
    lengths: list[int], length: int, way: tuple[Mode, Long], data: st.DataObject
) -> None:
    packing = packed(lengths, length, *way)
    first, end = sorted(data.draw(st.tuples(*[st.integers(0, packing.n_sequences)] * 2)))
    documents, segments = part(packing.segments, first, end)
    found = listed(packing._replace(segments=segments, n_sequences=end - first))
    moved = [[(document + documents.start, start, n) for document, start, n in one] for one in found]
    assert moved == listed(packing)[first:end]
    in_it = {document for one in moved for document, *_ in one}
    assert documents == (range(min(in_it), max(in_it) + 1) if in_it else range(0))


def test_a_mistake_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="the length of sequences: expected 1 or more; found 0"):
        packed([1], 0, "none")
    with pytest.raises(ValueError, match="document 1: expected 0 or more tokens; found -1"):
        packed([1, -1], 4, "none")
    with pytest.raises(ValueError, match="expected long=split; found long=cut"):
        packed([1], 4, "concat", "cut")
    with pytest.raises(ValueError, match="expected long=split; found long=drop"):
        packed([1], 4, "concat", "drop")
