"""The tokens of sequences are those of their segments, and no label reaches from one document into another."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.file_sets.packing import Mode, pack, part
from tokenmill.file_sets.sequences import NO_LABEL, labels, sequences, starts

MODES = ["none", "concat", "best_fit"]
KINDS = [pa.list_(pa.uint16()), pa.large_list(pa.uint16()), pa.list_(pa.uint32()), pa.large_list(pa.uint32())]


def numbered(lengths: list[int]) -> list[list[int]]:
    """Documents of these lengths in which each token is another."""
    number = itertools.count(1)
    return [[next(number) for _ in range(n)] for n in lengths]


def list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


def test_sequences_and_their_starts_are_those_worked_out_by_hand() -> None:
    documents = pa.array([[1, 2, 3], [], [4, 5], [6, 7, 8, 9, 10]], KINDS[0])
    packing = pack(np.array([3, 0, 2, 5]), 4, "best_fit", "split")
    found = sequences(documents, packing.segments)
    assert found.type == list_of(pa.uint16())
    assert found.to_pylist() == [[1, 2, 3, 10], [4, 5], [6, 7, 8, 9]]
    assert starts(packing.segments).type == list_of(pa.int32())
    assert starts(packing.segments).to_pylist() == [[0, 3], [0], [0]]


@given(
    st.lists(st.integers(0, 10), max_size=12),
    st.integers(1, 8),
    st.sampled_from(MODES),
    st.sampled_from(KINDS),
    st.data(),
)
def test_sequences_hold_the_tokens_of_their_segments(
    lengths: list[int], length: int, mode: Mode, kind: pa.DataType, data: st.DataObject
) -> None:
    texts = numbered(lengths)
    documents = pa.array([[9, 9], *texts, [9]], kind)[1:-1]
    packing = pack(np.array(lengths, np.int64), length, mode, "split")
    expected: list[list[int]] = [[] for _ in range(packing.n_sequences)]
    expected_starts: list[list[int]] = [[] for _ in range(packing.n_sequences)]
    for sequence, document, start, n in zip(*packing.segments, strict=True):
        expected_starts[sequence].append(len(expected[sequence]))
        expected[sequence] += texts[document][start : start + n]
    found = sequences(documents, packing.segments)
    found.validate(full=True)
    assert found.type == list_of(kind.value_type)
    assert found.to_pylist() == expected
    assert starts(packing.segments).to_pylist() == expected_starts
    for one in expected_starts:
        assert one[0] == 0
        assert one == sorted(set(one))
    first, end = sorted(data.draw(st.tuples(*[st.integers(0, packing.n_sequences)] * 2)))
    of, segments = part(packing.segments, first, end)
    assert sequences(documents[of.start : of.stop], segments).to_pylist() == expected[first:end]
    assert starts(segments).to_pylist() == expected_starts[first:end]


def test_the_first_token_of_a_document_is_no_label_where_another_one_is_before_it() -> None:
    ids = pa.array([[1, 2, 3, 4], [5, 6], [], [7, 8, 9]], pa.list_(pa.uint32()))
    first_tokens = pa.array([[0, 1, 3], [0], [], [0, 2]], pa.list_(pa.int32()))
    found = labels(ids, first_tokens)
    assert found.type == list_of(pa.int32())
    assert found.to_pylist() == [[1, NO_LABEL, 3, NO_LABEL], [5, 6], [], [7, 8, NO_LABEL]]
    assert labels(ids[1:], first_tokens[1:]).to_pylist() == found.to_pylist()[1:]
    assert labels(ids[:0], first_tokens[:0]).to_pylist() == []
    assert ids.to_pylist()[0] == [1, 2, 3, 4]


def test_an_id_that_int32_cannot_hold_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid):
        labels(pa.array([[2**31]], pa.list_(pa.uint32())), pa.array([[0]], pa.list_(pa.int32())))


def test_documents_that_are_not_those_that_were_packed_are_an_error() -> None:
    segments = pack(np.array([3, 2]), 5, "best_fit", "split").segments
    with pytest.raises(ValueError, match="document 1 has 1 tokens"):
        sequences(pa.array([[1, 2, 3], [4]], KINDS[0]), segments)
    with pytest.raises(IndexError):
        sequences(pa.array([[1, 2, 3]], KINDS[0]), segments)
