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

from tokenmill.corpus.dropped import Starts
from tokenmill.corpus.text_digests import text_keys
from tokenmill.dataset.document_index import ReadIndex, places_of, read_unit_index, split_keys
from tokenmill.dataset.splits import repeats, split_of
from tokenmill.file_sets.packing import Long, Mode, Packing, PairSides, Segments, n_cut_answers, pack, pack_pairs
from tokenmill.file_sets.packing import part as sequences_between
from tokenmill.file_sets.sequences import (
    NO_LABEL,
    labels,
    of_segments,
    position_ids,
    seq_lengths,
    sequences,
    starts,
    unlearned_starts,
)
from tokenmill.formats.parquet import read_ahead
from tokenmill_reader.formats.columns import SOURCE_IDS, list_of, list_values, schema_of
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.regular_files import naming

_SEQUENCE_TOKENS = 1 << 22  # sequences are made in groups of about this many tokens

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EncodedUnit:
    """The tokens of one unit. `file`: the name of its file below the folder of documents. `tokens`, `index`: its Parquet file and
    its document index. `pieces`: the shard and first row of each of its pieces. `content`: digests of both files; empty if no keys
    are needed. `source`: the name of its source; "" without named sources. `source_id`: its number in the manifest's `sources`."""

    file: str
    tokens: Path
    index: Path | ReadIndex
    pieces: Starts
    content: Sequence[str] = ()
    source: str = ""
    source_id: int = 0


@dataclass(frozen=True)
class Choice:
    """Says which documents a part of a file set has: those of `split` under the `shares` of all splits; all if it is None.

    `epochs`: the passes over each named source in a mixture; 1 without an entry. `number`: the pass, from 0. Whole passes have all
    documents, the last one may have a share."""

    split: str | None
    shares: Mapping[str, float]
    epochs: Mapping[str, Fraction] = field(default_factory=dict)
    number: int = 0

    def of(self, unit: EncodedUnit, index: pa.Table) -> npt.NDArray[np.bool_]:
        """Whether each document of a unit is chosen. `index`: columns of its document index: sha256, and group if there is one."""
        chosen = np.ones(len(index), np.bool_)
        if self.split is not None:
            chosen = split_of(split_keys(index), self.shares) == list(self.shares).index(self.split)
        epochs = self.epochs_of(unit)
        if epochs < self.number + 1:
            chosen &= repeats(text_keys(index["sha256"].combine_chunks()), epochs, unit.source) > self.number
        return chosen

    def epochs_of(self, unit: EncodedUnit) -> Fraction:
        """The number of passes over the unit's source in the mixture."""
        return self.epochs.get(unit.source, Fraction(1))

    def as_key(self, units: Sequence[EncodedUnit]) -> list[Any]:
        """The values that decide the choice among these units, for keys. All whole passes have the same."""
        epochs = {unit.source: self.epochs_of(unit) for unit in units}
        shares = [(source, str(one - self.number)) for source, one in epochs.items() if one < self.number + 1]
        return [self.split, list(self.shares.items()), shares]


class Part(NamedTuple):
    """Consecutive units whose chosen documents make one part of a file set. `n_documents`, `n_tokens`: totals of the chosen
    documents."""

    units: Sequence[EncodedUnit]
    choice: Choice
    n_documents: int
    n_tokens: int


def chosen_lengths(units: Iterable[EncodedUnit], choice: Choice) -> Numbers:
    """The numbers of tokens of the chosen documents of these units, in order."""
    lengths = [np.empty(0, np.int64)]
    for unit in units:
        index = read_unit_index(unit.index, ["n_tokens", "sha256", "group"])
        lengths.append(index["n_tokens"].to_numpy()[choice.of(unit, index)])
    return np.concatenate(lengths)


def items_of_part(
    part: Part, segments: Segments | None, wanted: range, shape: Shape, documents: Shape, pad_id: int | None
) -> Iterator[pa.RecordBatch]:
    """Items of a part in the order of the dataset: documents, or sequences if `segments` says what makes them.

    `wanted`: the numbers of these items in the part. `shape`, `documents`: the shapes of the items and of documents. `pad_id`:
    fills sequences up to their length; None: no padding.
    """
    if segments is None:
        return _documents_of_part(part, documents, wanted)
    return _sequences_of_part(part, segments, wanted, shape, documents, pad_id)


def _documents_of_part(part: Part, shape: Shape, wanted: range) -> Iterator[pa.RecordBatch]:
    rows_of = None if len(wanted) == part.n_documents else _rows_of(part, wanted)
    read = -1
    for i, row, batch in read_ahead([unit.tokens for unit in part.units], rows_of):
        if i != read:
            read, unit = i, part.units[i]
            index = read_unit_index(unit.index, ["piece", "row", "sha256", "group"])
            is_chosen = part.choice.of(unit, index)
            if rows_of is not None:
                is_chosen[: rows_of[i].start] = is_chosen[rows_of[i].stop :] = False
            pieces, rows = (index[name].combine_chunks() for name in ("piece", "row"))
        own = places_of(pieces.slice(row, len(batch)), rows.slice(row, len(batch)), unit.pieces)
        if shape.has_sources:
            own[SOURCE_IDS] = _one_each(np.full(len(batch), unit.source_id, np.int32))
        columns = [own[name] if name in own else batch[name] for name in schema_of(shape).names]
        items = pa.RecordBatch.from_arrays(columns, schema=schema_of(shape))
        mask = is_chosen[row : row + len(batch)]
        if mask.all():
            yield items
        elif mask.any():
            yield items.filter(pa.array(mask))


def _one_each(values: npt.NDArray[np.int32]) -> pa.ListArray:
    """Lists of one value each."""
    lists = pa.array(values)
    return pa.ListArray.from_arrays(
        pa.array(np.arange(len(values) + 1, dtype=np.int32)), lists, type=list_of(SOURCE_IDS, lists.type).type
    )


def _rows_of(part: Part, wanted: range) -> list[range]:
    """The rows of each unit's file from the first to the last of its chosen documents that are in `wanted`."""
    ranges, n_before = [], 0
    for unit in part.units:
        rows = np.empty(0, np.int64)
        if n_before < wanted.stop:
            rows = np.flatnonzero(part.choice.of(unit, read_unit_index(unit.index, ["sha256", "group"])))
        wanted_rows = rows[max(wanted.start - n_before, 0) : max(wanted.stop - n_before, 0)]
        ranges.append(range(int(wanted_rows[0]), int(wanted_rows[-1]) + 1) if len(wanted_rows) else range(0))
        n_before += len(rows)
    return ranges


def _sequences_of_part(
    part: Part, segments: Segments, wanted: range, shape: Shape, documents: Shape, pad_id: int | None
) -> Iterator[pa.RecordBatch]:
    """The sequences in the order of `segments`, some millions of tokens at a time. Documents are held from their first sequence to
    their last: at most those of a window of the packing."""
    assert shape.length is not None
    # Where files of sequences meet, the documents of both are read twice: at most those of a window of the packing.
    of_file, segments = sequences_between(segments, wanted.start, wanted.stop)
    names = ["input_ids", *["loss_mask"] * shape.has_mask, *[SOURCE_IDS] * shape.has_sources]
    held = _Held(_documents_of_part(part, documents, of_file), names)
    needed = np.minimum.accumulate(segments.document[::-1])[::-1]  # the first document that is still needed
    first = n_sequences = 0
    for stop in _stops(segments, shape.length if pad_id is not None else 0):
        used, group = sequences_between(segments, first, stop)
        lists = held.between(used.start, used.stop)
        sources = lists.pop().flatten() if shape.has_sources else None
        columns = _columns([sequences(lists_of, group) for lists_of in lists], starts(group), shape, pad_id)
        if sources is not None:
            columns[SOURCE_IDS] = of_segments(sources.take(pa.array(group.document)), columns["starts"])
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema_of(shape).names], schema=schema_of(shape))
        first, n_sequences = stop, n_sequences + len(group.sequence)
        if n_sequences < len(needed):
            held.forget(int(needed[n_sequences]))


def _columns(
    lists: Sequence[pa.ListArray], begin: pa.ListArray, shape: Shape, pad_id: int | None
) -> dict[str, pa.ListArray]:
    """The columns of sequences: ids, and what the shape asks for. `begin`: the starts of their segments."""
    assert shape.length is not None
    ids, mask = lists[0], unlearned_starts(lists[1], begin) if shape.has_mask else None
    columns = {"input_ids": ids, "starts": begin}
    if mask is not None:
        columns["loss_mask"] = mask
    if shape.has_labels:
        columns["labels"] = labels(ids, begin, mask)
    if pad_id is not None:
        fill = {"input_ids": pad_id, "labels": NO_LABEL, "loss_mask": 0}
        columns |= {name: _padded(columns[name], fill[name], shape.length) for name in columns.keys() & fill.keys()}
    if shape.has_labels:
        lengths = pc.list_value_length(columns["input_ids"]).to_numpy().astype(np.int64)
        columns |= {"position_ids": position_ids(lengths, begin), "seq_lengths": seq_lengths(lengths, begin)}
    return columns


def _stops(segments: Segments, length_min: int) -> Iterator[int]:
    """The ends of groups of consecutive sequences with about _SEQUENCE_TOKENS tokens. `length_min`: to which they are filled up."""
    if not len(segments.sequence):
        return
    lengths = np.maximum(np.bincount(segments.sequence, segments.n_tokens).astype(np.int64), length_min)
    tokens = np.concatenate([[0], np.cumsum(lengths)])
    start = 0
    while start < len(lengths):
        stop = int(np.searchsorted(tokens, tokens[start] + _SEQUENCE_TOKENS, side="right")) - 1
        start = max(stop, start + 1)
        yield start


def pack_part(part: Part, length: int, mode: Mode, long: Long) -> Packing:
    """Packs the chosen documents of a part into sequences."""
    return pack(chosen_lengths(part.units, part.choice), length, mode, long)


def pack_pairs_of_part(part: Part, documents: Shape, length: int, long: Long) -> tuple[Packing, dict[str, int]]:
    """Packs the pairs of a part. Also gives numbers: `n_trained`, their trained tokens, `n_cut_answers`, the pairs that lose some
    of these, and `n_equal_pairs`, those of them that are left out because both sides are equal, or would be after cutting."""
    sizes: list[tuple[int, int, int, int]] = []
    n_trained = 0
    for batch in _documents_of_part(part, documents, range(part.n_documents)):
        (ids, offsets), (mask, _) = list_values(batch["input_ids"]), list_values(batch["loss_mask"])
        n_trained += int(mask.sum())
        bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        sizes += [_sides(ids[start:end], mask[start:end]) for start, end in bounds]
    sides = PairSides(*np.array(sizes, np.int64).reshape(-1, 4).T)
    packing, n_long, n_equal = pack_pairs(sides, length, long)
    return packing, {"n_trained": n_trained, "n_cut_answers": n_long, "n_equal_pairs": n_equal}


def _sides(ids: npt.NDArray[Any], mask: npt.NDArray[np.int8]) -> tuple[int, int, int, int]:
    """The fields of PairSides for one pair."""
    edges = np.flatnonzero(np.diff(mask, prepend=0, append=0))
    if not len(edges):  # the template made both answers equal
        return len(ids), 0, len(ids), 0
    if len(edges) != 4:
        raise ValueError(
            f"expected a pair, with two trained answers; found {len(edges) // 2} stretches of trained tokens"
        )
    prompt, chosen, second, stop = edges.tolist()
    start = second - prompt
    one, other = ids[:chosen], ids[start:stop]
    n = min(len(one), len(other))
    differ = np.flatnonzero(one[:n] != other[:n])
    return chosen, stop - start, start, int(differ[0]) if len(differ) else n


def answers_of_part(part: Part, segments: Segments) -> dict[str, int]:
    """Numbers of a packed part of conversations: `n_trained`, its trained tokens, and `n_cut_answers` (see
    `packing.n_cut_answers`)."""
    n_trained, ends = 0, [np.empty(0, np.int64)]
    for unit in part.units:
        index = read_unit_index(unit.index, ["n_trained", "trained_end", "sha256", "group"])
        is_chosen = part.choice.of(unit, index)
        n_trained += int(index["n_trained"].to_numpy()[is_chosen].sum())
        ends.append(index["trained_end"].to_numpy()[is_chosen])
    return {"n_trained": n_trained, "n_cut_answers": n_cut_answers(segments, np.concatenate(ends))}


def tokens_of_sources(part: Part, segments: Segments) -> dict[str, int]:
    """The number of tokens of each source in the sequences of a packed part."""
    sources = {unit.source for unit in part.units}
    if len(sources) == 1:
        return {sources.pop(): int(segments.n_tokens.sum())}
    n_tokens_of, ends = dict.fromkeys(sources, 0), [0]
    for unit in part.units:
        ends.append(ends[-1] + int(part.choice.of(unit, read_unit_index(unit.index, ["sha256", "group"])).sum()))
    of_unit = np.searchsorted(ends, segments.document, side="right") - 1
    for unit, n_tokens in zip(part.units, np.bincount(of_unit, segments.n_tokens, len(part.units)), strict=True):
        n_tokens_of[unit.source] += int(n_tokens)
    return n_tokens_of


def write_segments(segments: Segments, path: Path) -> None:
    """Writes the segments of a part's sequences."""
    table = pa.table([pa.array(column) for column in segments], names=list(Segments._fields))
    with naming(path), pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_segments(path: Path) -> Segments:
    """Reads a file of `write_segments`."""
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    return Segments(*(table[name].to_numpy() for name in Segments._fields))


class _Held:
    """A sliding window over list columns of a part's chosen documents: `between` reads ahead as needed, `forget` frees the
    beginning. `names`: the columns."""

    def __init__(self, batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> None:
        self._batches = batches
        self._lists: dict[str, list[pa.Array]] = {name: [] for name in names}
        self._first = self._stop = 0  # the documents in the window

    def between(self, low: int, high: int) -> list[pa.LargeListArray]:
        """The columns of documents `low` to `high` - 1."""
        while self._stop < high:
            batch = next(self._batches)
            for name, held in self._lists.items():
                wide = pa.large_list(batch[name].type.value_field)  # may have 2^31 values or more
                held.append(batch[name].cast(wide))
            self._stop += batch.num_rows
        return [self._whole(name).slice(low - self._first, high - low) for name in self._lists]

    def forget(self, low: int) -> None:
        """Frees the documents before `low`."""
        for name in self._lists:
            self._lists[name] = [self._whole(name).slice(low - self._first)]
        self._first = low

    def _whole(self, name: str) -> pa.LargeListArray:
        if len(self._lists[name]) > 1:
            self._lists[name] = [pa.concat_arrays(self._lists[name])]
        return self._lists[name][0]


def _padded(lists: pa.ListArray, value: int, length: int) -> pa.ListArray:
    """Pads each list to `length` values with `value`."""
    lengths = pc.list_value_length(lists).to_numpy()
    kind = lists.type.value_type
    out = np.full((len(lists), length), value, kind.to_pandas_dtype())
    mask = np.arange(length) < lengths[:, None]
    out[mask] = lists.flatten().to_numpy()
    offsets = np.arange(len(lists) + 1, dtype=np.int32) * length
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(out.reshape(-1), kind), type=lists.type)
