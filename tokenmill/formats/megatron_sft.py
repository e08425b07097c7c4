"""megatron_sft: packed conversations for Megatron-Bridge in an MMapIndexedDataset, `.sft.bin` and `.sft.idx`.

The layout of an item is that of `encode_packed_row` in src/megatron/bridge/data/packing/indexed.py: words of int32, which are a
magic number, a version, the number of starts, the starts, and the ids with the loss mask in their highest bit.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import READ_ROWS_MAX, READ_VALUES_MAX, cut
from tokenmill.formats.files import new_file
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import check_items, checking
from tokenmill.formats.megatron_index import new_index
from tokenmill.formats.sft_items import at_inputs, at_labels, check_ends, columns, refusal
from tokenmill.formats.sidecar import new_sidecar
from tokenmill_reader.formats.arrays import whole_values
from tokenmill_reader.formats.columns import flat_of, list_of, list_values
from tokenmill_reader.formats.items import REBUILD, Shape
from tokenmill_reader.formats.megatron import INT32, read_offsets

_DATA = ".sft.bin"
_INDEX = ".sft.idx"
_MAGIC = 0x53465442  # "SFTB"
_VERSION = 1
_HEAD_WORDS = 3
_ID_BITS = (1 << 31) - 1

Words = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_DATA}"
    with (
        new_file(path) as put,
        new_index(folder / f"{stem}{_INDEX}", INT32) as put_lengths,
        new_sidecar(folder, stem, shape, with_starts=False) as add_sources,
    ):

        def add(batch: pa.RecordBatch) -> None:
            words, lengths = _encoded(batch)
            put(words)
            put_lengths(lengths)
            add_sources(batch)

        yield checking(add, shape, path)


def _encoded(batch: pa.RecordBatch) -> tuple[Words, Places]:
    """The words of all items, and how many each has."""
    flat = flat_of(batch)
    assert flat.loss_mask is not None
    starts, start_offsets = list_values(batch["starts"])
    n_starts, n_ids = np.diff(start_offsets), np.diff(flat.offsets)
    lengths = _HEAD_WORDS + n_starts + n_ids
    begins = np.cumsum(lengths) - lengths
    words = np.empty(int(lengths.sum()), "<u4")
    words[begins], words[begins + 1], words[begins + 2] = _MAGIC, _VERSION, n_starts
    words[_spans(begins + _HEAD_WORDS, n_starts)] = starts
    mask = at_inputs(flat.loss_mask).astype(np.uint32)
    words[_spans(begins + _HEAD_WORDS + n_starts, n_ids)] = flat.ids.astype(np.uint32) | mask << 31
    return words, lengths


def _spans(begins: Places, lengths: Places) -> Places:
    """All places of these spans, one span after another."""
    ends = np.cumsum(lengths)
    places: Places = np.arange(ends[-1] if ends.size else 0) + np.repeat(begins - (ends - lengths), lengths)
    return places


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    path = folder / f"{stem}{_DATA}"
    words = whole_values(path, "<u4")
    offsets = read_offsets(folder / f"{stem}{_INDEX}", INT32, path, words.size)
    start = 0
    while start < len(offsets) - 1:
        end = cut(offsets, start, READ_ROWS_MAX, READ_VALUES_MAX)
        items = _decoded(words, offsets[start : end + 1], shape, path, start)
        check_items(items, shape, path, start)
        yield items.cast(columns(shape))
        start = end


def _decoded(words: Words, offsets: Places, shape: Shape, path: Path, n_before: int) -> pa.RecordBatch:
    """The items between these offsets, whose ids are still uint32. Raises ValidationError for one that is not such an item."""

    def check(right: npt.NDArray[np.bool_], what: str) -> None:
        if not right.all():
            raise ValidationError(path, f"item {n_before + int(np.argmin(right)):,}: expected {what}.", REBUILD)

    begins, lengths = offsets[:-1], np.diff(offsets)
    check(lengths > _HEAD_WORDS + 1, f"a head of {_HEAD_WORDS} words, a start and an id; found fewer words")
    check(words[begins] == _MAGIC, f"the magic number {_MAGIC:#x}; found another")
    check(words[begins + 1] == _VERSION, f"version {_VERSION}; found another")
    n_starts = words[begins + 2].astype(np.int64)
    check((n_starts > 0) & (n_starts < lengths - _HEAD_WORDS), "a start and an id; found a wrong number of starts")
    n_ids = lengths - _HEAD_WORDS - n_starts
    starts = words[_spans(begins + _HEAD_WORDS, n_starts)].view(np.int32)
    tokens = words[_spans(begins + _HEAD_WORDS + n_starts, n_ids)]
    mask = (tokens >> 31).astype(np.int8)
    check_ends(mask, np.append(0, np.cumsum(n_ids)), path, n_before)
    kinds = columns(shape).set(0, list_of("input_ids", pa.uint32()))
    lists = [(tokens & _ID_BITS, n_ids), (starts, n_starts), (at_labels(mask), n_ids)]
    return pa.RecordBatch.from_arrays(
        [_lists(values, sizes, field.type) for (values, sizes), field in zip(lists, kinds, strict=True)], schema=kinds
    )


def _lists(values: npt.NDArray[np.generic], sizes: Places, type: pa.DataType) -> pa.ListArray:
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, type.value_type), type=type)


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    return refusal(shape, "megatron_sft")


MEGATRON_SFT = Format("megatron_sft", (_DATA, _INDEX), _write, _read, None, _refusal)
