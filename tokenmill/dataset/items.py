"""The items of a file set, read from encoded units: documents of one split, or sequences that are packed from them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.dataset.document_index import read_unit_index, split_keys
from tokenmill.dataset.formats.index import ITEMS as INDEX_ITEMS
from tokenmill.dataset.formats.interface import Shape
from tokenmill.dataset.formats.parquet import read_tokens
from tokenmill.dataset.packing import Packing, labels, pack, sequences, starts
from tokenmill.dataset.splits import repeats, split_of, text_keys
from tokenmill.storage.atomic import naming

_INDEX_ROWS = 1 << 16
_SEQUENCE_TOKENS = 1 << 22  # of the sequences that are made at once

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EncodedUnit:
    """The tokens of one unit. `file`: its name in the dataset. `tokens`, `index`: its Parquet file and its document index.
    `shards`: the names of the shards of its pieces. `content`: digests of both files; empty where nobody asks for keys.
    `source`: the name of its source; "" without named sources."""

    file: str
    tokens: Path
    index: Path
    shards: Sequence[str]
    content: Sequence[str] = ()
    source: str = ""


@dataclass(frozen=True)
class Choice:
    """Which documents a part of a file set has: those of the split `split`, given the `shares` of all splits; all of them for None.

    `epochs`: how many passes over each named source a mixture wants; 1 for those without an entry. The documents are those of the
    pass `number`, from 0: all of them in whole passes, and a share in the last."""

    split: str | None
    shares: Mapping[str, float]
    epochs: Mapping[str, Fraction] = field(default_factory=dict)
    number: int = 0

    def of(self, unit: EncodedUnit, index: pa.Table) -> npt.NDArray[np.bool_]:
        """Whether each document of a unit is chosen. `index`: columns of its document index: sha256, and group if there is one."""
        chosen = np.ones(len(index), np.bool_)
        if self.split is not None:
            chosen = split_of(split_keys(index), self.shares) == list(self.shares).index(self.split)
        epochs = self.epochs.get(unit.source, Fraction(1))
        if epochs < self.number + 1:
            chosen &= repeats(text_keys(index["sha256"].combine_chunks()), epochs, unit.source) > self.number
        return chosen

    def as_key(self, units: Sequence[EncodedUnit]) -> list[Any]:
        """What decides which documents of these units are chosen. It is the same for all whole passes."""
        epochs = {unit.source: self.epochs.get(unit.source, Fraction(1)) for unit in units}
        shares = [(source, str(one - self.number)) for source, one in epochs.items() if one < self.number + 1]
        return [self.split, list(self.shares.items()), shares]


class Part(NamedTuple):
    """Consecutive units whose chosen documents make one part of a file set, with the numbers of those and of their tokens."""

    units: Sequence[EncodedUnit]
    choice: Choice
    n_documents: int
    n_tokens: int


def chosen_lengths(units: Iterable[EncodedUnit], choice: Choice) -> Longs:
    """The numbers of tokens of the chosen documents of these units, in order."""
    found = [np.empty(0, np.int64)]
    for unit in units:
        index = read_unit_index(unit.index, ["n_tokens", "sha256", "group"])
        found.append(index["n_tokens"].to_numpy()[choice.of(unit, index)])
    return np.concatenate(found)


def documents_of_part(part: Part, shape: Shape) -> Iterator[pa.RecordBatch]:
    """The chosen documents of a part in the order of the dataset. `shape`: of documents."""
    for unit in part.units:
        yield from _documents_of_unit(unit, part.choice, shape)


def _documents_of_unit(unit: EncodedUnit, choice: Choice, shape: Shape) -> Iterator[pa.RecordBatch]:
    index = read_unit_index(unit.index, ["piece", "row", "sha256", "group"])
    is_chosen = choice.of(unit, index)
    shards, pieces = pa.array(unit.shards, pa.string()), index["piece"].combine_chunks()
    rows = index["row"].combine_chunks()
    at = 0
    for batch in read_tokens(unit.tokens):
        n_rows = batch.num_rows
        columns = [*batch.columns, shards.take(pieces.slice(at, n_rows)), rows.slice(at, n_rows)]
        made = pa.RecordBatch.from_arrays(columns, schema=shape.schema)
        mask = is_chosen[at : at + n_rows]
        at += n_rows
        if mask.all():
            yield made
        elif mask.any():
            yield made.filter(pa.array(mask))


def items_of_part(
    part: Part, packing: Packing | None, shape: Shape, documents: Shape, pad_id: int | None
) -> Iterator[pa.RecordBatch]:
    """The items of a part in the order of the dataset: its documents, or its sequences where it is packed."""
    if packing is None:
        return documents_of_part(part, documents)
    return sequences_of_part(part, packing, shape, documents, pad_id)


def pack_part(part: Part, length: int, mode: str, long: str) -> Packing:
    """Which parts of which chosen documents make each sequence of a part."""
    return pack(chosen_lengths(part.units, part.choice), length, mode, long)


def sequences_of_part(
    part: Part, packing: Packing, shape: Shape, documents: Shape, pad_id: int | None
) -> Iterator[pa.RecordBatch]:
    """The packed sequences of a part in the order of `packing`. `shape`, `documents`: of sequences and of their documents.
    `pad_id`: fills sequences up to their length.

    Documents are held from their first sequence to their last: those of a window of the packing, or of about 4 million tokens.
    """
    assert shape.length is not None
    held = _Held(documents_of_part(part, documents))
    first, n_ends = 0, len(packing.sequence)
    bounds = np.searchsorted(packing.sequence, np.arange(packing.n_sequences + 1))  # the first piece of each sequence
    tokens = np.concatenate([[0], np.cumsum(packing.n_tokens)])
    needed = np.minimum.accumulate(packing.document[::-1])[::-1] if n_ends else packing.document  # from a piece on
    for stop in _stops(tokens[bounds]):
        pieces = slice(int(bounds[first]), int(bounds[stop]))
        used = packing.document[pieces]
        low, high = int(used.min()), int(used.max()) + 1
        lists = held.between(low, high)
        some = Packing(
            packing.sequence[pieces] - first,
            used - low,
            packing.start[pieces],
            packing.n_tokens[pieces],
            stop - first,
            *packing[5:],
        )
        ids = sequences(lists, some, None, shape.length)
        columns = [ids, starts(some)]
        if shape.has_labels:
            columns.append(labels(ids, columns[1]))
        if pad_id is not None:
            columns[0] = _padded(ids, pad_id, shape.length)
            if shape.has_labels:
                columns[2] = _padded(columns[2], _NO_LABEL, shape.length)
        yield pa.RecordBatch.from_arrays(columns, schema=shape.schema)
        if pieces.stop < n_ends:
            held.forget(int(needed[pieces.stop]))
        first = stop


def index_of_part(number: int, packing: Packing) -> Iterator[pa.RecordBatch]:
    """What makes each sequence of a part: a row for each sequence, with lists of the part's `number`, and of the row in the part,
    the first token and the number of tokens of each piece of a document."""
    bounds = np.searchsorted(packing.sequence, np.arange(packing.n_sequences + 1))
    values = (np.full(len(packing.document), number), packing.document, packing.start, packing.n_tokens)
    for first in range(0, packing.n_sequences, _INDEX_ROWS):
        offsets = bounds[first : first + _INDEX_ROWS + 1]
        at = pa.array((offsets - offsets[0]).astype(np.int32))
        columns = [
            pa.ListArray.from_arrays(at, pa.array(one[offsets[0] : offsets[-1]], pa.int64()), type=field.type)
            for one, field in zip(values, INDEX_ITEMS, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=INDEX_ITEMS)


def write_packing(packing: Packing, path: Path) -> None:
    """Writes which pieces make the sequences of a part."""
    table = pa.table([pa.array(one) for one in packing[:4]], names=list(packing._fields[:4]))
    with naming(path), pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_packing(path: Path, n_sequences: int) -> Packing:
    """The packing in such a file. Its numbers for a report are 0."""
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    columns = [table[name].to_numpy() for name in Packing._fields[:4]]
    return Packing(*columns, n_sequences, *[0] * (len(Packing._fields) - 5))


_NO_LABEL = -100  # what PyTorch's cross entropy leaves out (ignore_index)


def _stops(tokens: Longs) -> Iterator[int]:
    """The ends of groups of consecutive sequences with about _SEQUENCE_TOKENS tokens. `tokens`: before each of them, and in all."""
    at = 0
    while at < len(tokens) - 1:
        stop = int(np.searchsorted(tokens, tokens[at] + _SEQUENCE_TOKENS, side="right")) - 1
        at = max(stop, at + 1)
        yield at


class _Held:
    """The tokens of a part's chosen documents, read as far as they are needed and held until they are forgotten."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._lists: list[pa.Array] = []
        self._first = self._stop = 0  # the documents that are held

    def between(self, low: int, high: int) -> pa.LargeListArray:
        """The tokens of the documents from `low` up to but without `high`."""
        while self._stop < high:
            lists = next(self._batches)["input_ids"]
            self._lists.append(lists.cast(pa.large_list(lists.type.value_field)))  # more ids than 31 bits count, maybe
            self._stop += len(lists)
        return self._whole().slice(low - self._first, high - low)

    def forget(self, low: int) -> None:
        """Lets go of the documents before `low`."""
        self._lists = [self._whole().slice(low - self._first)]
        self._first = low

    def _whole(self) -> pa.LargeListArray:
        if len(self._lists) > 1:
            self._lists = [pa.concat_arrays(self._lists)]
        return self._lists[0]


def _padded(lists: pa.ListArray, value: int, length: int) -> pa.ListArray:
    """Lists of `length` values each: the same with `value` at their ends."""
    lengths = pc.list_value_length(lists).to_numpy()
    kind = lists.type.value_type
    out = np.full((len(lists), length), value, kind.to_pandas_dtype())
    mask = np.arange(length) < lengths[:, None]
    out[mask] = lists.flatten().to_numpy()
    offsets = np.arange(len(lists) + 1, dtype=np.int32) * length
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(out.reshape(-1), kind), type=lists.type)
