"""The tokens of packed sequences, and what follows from their segments, as Arrow lists."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.file_sets.packing import Integers, Segments

NO_LABEL = -100
"""The label of a token that is not to be predicted, as PyTorch's cross-entropy ignores it."""

_TOKENS_MAX = (1 << 31) - 1  # of one list array, whose offsets are int32


def sequences(documents: pa.ListArray | pa.LargeListArray, segments: Segments) -> pa.ListArray:
    """The token ids of each sequence, in the type that the documents' ids have.

    `segments`: the segments of these documents from `pack` or `part`. Takes memory for the documents and for the result, so large
    sets are best given in parts. Raises ValueError if a segment ends behind its document, or there are 2^31 tokens or more.

    >>> from tokenmill.file_sets.packing import pack
    >>> documents = pa.array([[1, 2, 3], [4], [5, 6]], pa.list_(pa.uint16()))
    >>> segments = pack(np.array([3, 1, 2]), 4, "best_fit", "split").segments
    >>> sequences(documents, segments).to_pylist()
    [[1, 2, 3, 4], [5, 6]]
    """
    offsets = documents.offsets.to_numpy().astype(np.int64)
    values = documents.values[offsets[0] : offsets[-1]]
    offsets -= offsets[0]
    firsts = offsets[segments.document] + segments.start
    too_long = np.flatnonzero(firsts + segments.n_tokens > offsets[segments.document + 1])
    if len(too_long):
        document = int(segments.document[too_long[0]])
        n_tokens = int(offsets[document + 1] - offsets[document])
        raise ValueError(
            f"document {document} has {n_tokens} tokens; its segments have more. Pack it by its own length."
        )
    sequence_offsets = np.concatenate([[0], np.cumsum(segments.n_tokens)[_sequence_ends(segments) - 1]])
    if sequence_offsets[-1] > _TOKENS_MAX:
        raise ValueError(
            f"expected fewer than 2^31 tokens; found {sequence_offsets[-1]:,}. Take fewer sequences at a time."
        )
    tokens = pa.LargeListViewArray.from_arrays(firsts, segments.n_tokens, values).flatten()
    return _lists(sequence_offsets, tokens)


def starts(segments: Segments) -> pa.ListArray:
    """The position in its sequence of the first token of each segment, from 0: int32.

    >>> from tokenmill.file_sets.packing import pack
    >>> starts(pack(np.array([3, 1, 2]), 4, "best_fit", "split").segments).to_pylist()
    [[0, 3], [0]]
    """
    ends = _sequence_ends(segments)
    segment_offsets = np.concatenate([[0], ends])
    firsts = np.cumsum(segments.n_tokens) - segments.n_tokens
    of_sequences = np.repeat(firsts[segment_offsets[:-1]], np.diff(segment_offsets))
    return _lists(segment_offsets, pa.array((firsts - of_sequences).astype(np.int32)))


def of_segments(values: pa.Array, starts: pa.ListArray) -> pa.ListArray:
    """A value for each segment as lists, with one for each start."""
    return _lists(starts.offsets.to_numpy() - starts.offsets[0].as_py(), values)


def unlearned_starts(loss_mask: pa.ListArray, starts: pa.ListArray) -> pa.ListArray:
    """The mask with 0 at each start, where the token before is of another document, or there is none.

    >>> mask, starts = pa.array([[1, 1, 1], [1]], pa.list_(pa.int8())), pa.array([[0, 2], [0]], pa.list_(pa.int32()))
    >>> unlearned_starts(mask, starts).to_pylist()
    [[0, 1, 0], [0]]
    """
    offsets = loss_mask.offsets.to_numpy() - loss_mask.offsets[0].as_py()
    values = loss_mask.flatten().to_numpy().copy()
    values[_places(offsets, starts)] = 0
    return _lists(offsets, pa.array(values))


def labels(ids: pa.ListArray, starts: pa.ListArray, loss_mask: pa.ListArray | None = None) -> pa.ListArray:
    """The ids as int32, with NO_LABEL at each start but 0, where the token before is of another document. With `loss_mask`, a mask
    of these sequences: with NO_LABEL wherever it is 0.

    A model that shifts labels by itself, as transformers' do, then never predicts a token from another document's last one.
    Padding has its ids; the caller knows where it begins. Raises ArrowInvalid for an id of 2^31 or more.

    >>> ids, starts = pa.array([[5, 6, 7], [8]], pa.list_(pa.uint16())), pa.array([[0, 2], [0]], pa.list_(pa.int32()))
    >>> labels(ids, starts).to_pylist()
    [[5, 6, -100], [8]]
    >>> labels(ids, starts, pa.array([[0, 1, 0], [0]], pa.list_(pa.int8()))).to_pylist()
    [[-100, 6, -100], [-100]]
    """
    offsets = ids.offsets.to_numpy() - ids.offsets[0].as_py()
    values = ids.flatten().cast(pa.int32()).to_numpy().copy()
    if loss_mask is None:
        values[_places(offsets, starts)[starts.flatten().to_numpy() > 0]] = NO_LABEL
    else:
        values[loss_mask.flatten().to_numpy() == 0] = NO_LABEL
    return _lists(offsets, pa.array(values))


def position_ids(lengths: Integers, starts: pa.ListArray) -> pa.ListArray:
    """The position of each token behind the last start, from 0: int32. `lengths`: the sequences' lengths with padding.

    >>> position_ids(np.array([5, 1]), pa.array([[0, 3], [0]], pa.list_(pa.int32()))).to_pylist()
    [[0, 1, 2, 0, 1], [0]]
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    sizes = seq_lengths(lengths, starts).flatten().to_numpy()
    values = np.arange(offsets[-1]) - np.repeat(_places(offsets, starts), sizes)
    return _lists(offsets, pa.array(values.astype(np.int32)))


def seq_lengths(lengths: Integers, starts: pa.ListArray) -> pa.ListArray:
    """The tokens from each start to the next one, or to the end of the sequence: int32. `lengths`: the sequences' lengths with
    padding.

    >>> seq_lengths(np.array([5, 1]), pa.array([[0, 3], [0]], pa.list_(pa.int32()))).to_pylist()
    [[3, 2], [1]]
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    sizes = np.diff(_places(offsets, starts), append=offsets[-1])
    return _lists(starts.offsets.to_numpy() - starts.offsets[0].as_py(), pa.array(sizes.astype(np.int32)))


def _places(offsets: Integers, starts: pa.ListArray) -> Integers:
    """Where the segments begin among the tokens of all sequences. `offsets`: where the sequences begin."""
    first_tokens = np.repeat(offsets[:-1], np.diff(starts.offsets.to_numpy()))
    places: Integers = first_tokens + starts.flatten().to_numpy()
    return places


def _sequence_ends(segments: Segments) -> npt.NDArray[np.int64]:
    """The index behind the last segment of each sequence."""
    return np.flatnonzero(np.diff(segments.sequence, append=-1)) + 1


def _lists(offsets: npt.NDArray[np.int64], values: pa.Array) -> pa.ListArray:
    kind = pa.list_(pa.field("element", values.type, nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)
