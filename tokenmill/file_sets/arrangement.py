"""Arranges the documents of a dataset into file sets: gives the items of each file in order, packed and shuffled as asked.

Slow steps (packing, and putting items into buckets) are tasks, so a build finds their results in its unit store.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config.encode_params import Pack
from tokenmill.console import Advance
from tokenmill.corpus.dropped import Starts
from tokenmill.dataset.entries import Files, MixedSource
from tokenmill.file_sets.cuts import DocumentFiles, cut, document_files
from tokenmill.file_sets.index_items import index_of_part
from tokenmill.file_sets.items import (
    EncodedUnit,
    Part,
    answers_of_part,
    items_of_part,
    pack_pairs_of_part,
    pack_part,
    read_segments,
    tokens_of_sources,
    write_segments,
)
from tokenmill.file_sets.packing import Segments
from tokenmill.file_sets.planned import PlannedSet, plan_sets, shape_of
from tokenmill.file_sets.shuffle import Buckets, buckets_of, gather, scatter
from tokenmill.formats.index import INDEX_FORMAT
from tokenmill.formats.interface import Format
from tokenmill.quantities import number_of
from tokenmill.rounds import Facts, Round, Rounds, Task, do
from tokenmill.storage.unit_store import unit_key
from tokenmill_reader.formats.columns import schema_of
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.order import Order

_SEGMENTS_FILE = "segments.arrow"
_BUCKETS_FILE = "buckets.arrow"

_OF_NANOGPT = {"": "train", "validation": "val"}  # the file names that nanoGPT reads, by split

Items = Callable[[], Iterator[pa.RecordBatch]]


class SetFacts(Facts, frozen=True):
    """The numbers of items (documents or sequences) and tokens that a piece of work wrote. `packed`: the numbers of a Packing, by
    field. `of_sources`: the tokens in the sequences, by source."""

    n_items: int
    n_tokens: int = 0
    packed: dict[str, int] = msgspec.field(default_factory=dict)
    of_sources: dict[str, int] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{number_of(self.n_items, 'item')}, {number_of(self.n_tokens, 'token')}"


class PackTask(Task[SetFacts], frozen=True, kw_only=True):
    """Packs the documents of a part into sequences, and writes their segments. `documents`: their shape."""

    part: Part
    pack: Pack
    documents: Shape

    def run(self, folder: Path, advance: Advance) -> SetFacts:
        """Writes the segments (see Task)."""
        answers: dict[str, int] = {}
        if self.documents.is_pair:
            packing, answers = pack_pairs_of_part(self.part, self.documents, self.pack.length, self.pack.long)
        else:
            packing = pack_part(self.part, self.pack.length, self.pack.mode, self.pack.long)
            if self.documents.has_mask:
                answers = answers_of_part(self.part, packing.segments)
        write_segments(packing.segments, folder / _SEGMENTS_FILE)
        numbers = {name: int(n) for name, n in packing._asdict().items() if name != "segments"} | answers
        n_tokens = int(packing.segments.n_tokens.sum())
        return SetFacts(packing.n_sequences, n_tokens, numbers, tokens_of_sources(self.part, packing.segments))


class BucketsTask(Task[SetFacts], frozen=True, kw_only=True):
    """Puts the items of a part into the buckets of a shuffled set. `first`: the number of the part's first item in the set."""

    items: Items
    first: int
    order: Order
    buckets: Buckets

    def run(self, folder: Path, advance: Advance) -> SetFacts:
        """Writes the buckets (see Task)."""
        return SetFacts(scatter(self.items(), self.first, self.order, self.buckets, folder / _BUCKETS_FILE))


class ArrangedFile(NamedTuple):
    """A part of a set, written as one or a few files. `items`: gives its items in order. `key`: the digest of everything that
    decides them."""

    name: str
    key: str
    items: Items


class ArrangedSet(NamedTuple):
    """The files of one format for one split, source and epoch. `before`: the tasks that Arrangement.prepare must run before any
    items can be read."""

    format: Format
    split: str | None
    source: str | None
    epoch: int | None
    files: Sequence[ArrangedFile]
    before: Sequence[BucketsTask]

    @property
    def folder(self) -> str:
        """Its folder, relative to the dataset's folder."""
        epoch = None if self.epoch is None else f"epoch-{self.epoch}"
        below = [] if self.format.one_file else [self.split, self.source, epoch]
        return "/".join([self.format.name, *(one for one in below if one is not None)])

    def stem(self, i: int) -> str:
        """The name of file number `i`, without suffix."""
        return (
            one_file_stem(self.split, self.source, self.epoch) if self.format.one_file else f"{self.format.part}{i:05}"
        )


def one_file_stem(split: str | None, source: str | None, epoch: int | None) -> str:
    """The name of the one file of a set, without its suffix."""
    name = _OF_NANOGPT.get(split or "", split)
    return "-".join(one for one in (name, source, None if epoch is None else f"epoch-{epoch}") if one)


class _Arranged(NamedTuple):
    """A part of a set. `packing`: the file of its segments; None without packing. `n_items`: the number of its documents or
    sequences. `of_sources`: the tokens in its sequences, by source."""

    part: Part
    key: str
    packing: Path | None
    n_items: int
    of_sources: Mapping[str, int]

    def segments(self) -> Segments | None:
        return None if self.packing is None else read_segments(self.packing)


class _Slice(NamedTuple):
    """Items of a part for one file. `items`: their numbers in the part. `documents`: the files that an index names."""

    arranged: _Arranged
    items: range
    documents: DocumentFiles


class Arrangement:
    """The file sets of one dataset.

    `round`: the name of its rounds of tasks. `formats`: those of the sets. `documents`: the shape of documents. `code`: the digest
    of the code that decides the bytes, for the keys.
    """

    def __init__(
        self, round: str, files: Files, formats: Sequence[Format], documents: Shape, threads: int, code: str
    ) -> None:
        documents = replace(documents, has_sources=files.source_ids)
        self.shape: Shape = shape_of(files, documents)
        self.packed: dict[str, dict[str, int]] = {}
        self.mixture: list[MixedSource] = []
        self._buckets: dict[str, Path] = {}
        self.round: str = round
        self.formats: Sequence[Format] = formats
        self._files, self._documents, self._threads = files, documents, threads
        self._decides: dict[str, Any] = {
            "code": code,
            "shape": [str(schema_of(self.shape)), documents.id_max, documents.tokenizer_digest],
            "framing": [documents.begin_id, documents.end_id],
            "pack": None if files.pack is None else files.pack.model_dump(),
            "pad": files.pad_id,
        }

    def sets(self, units: Sequence[EncodedUnit], tokens_digest: str) -> Rounds[list[ArrangedSet]]:
        """All sets. Also fills `packed`, the packing's numbers by split, and `mixture`. `tokens_digest`: see
        Manifest.tokens_digest."""
        files = self._files
        planned = plan_sets(units, files, self._id_bytes, self._threads)
        arranged = yield from self._packed_parts(planned)
        self.mixture = [
            entry if files.pack is None else entry.model_copy(update={"n_tokens": _in_sequences(parts, entry.source)})
            for planned_set, parts in zip(planned, arranged, strict=True)
            for entry in planned_set.mixture
            if not planned_set.epoch  # equal in each epoch
        ]
        has_index = files.pack is not None and files.pack.output == "index"
        sets = []
        for planned_set, parts in zip(planned, arranged, strict=True):
            documents = document_files([part.part.n_documents for part in parts], files.min_parts)
            for format in [*self.formats, *[INDEX_FORMAT] * has_index]:
                once = has_index and not _is_index(format)  # documents in the order of the dataset, for all epochs
                if once and planned_set.epoch:
                    continue
                epoch = None if once else planned_set.epoch
                arranged_files, before = (
                    self._shuffled(format, planned_set, parts, documents, tokens_digest)
                    if files.shuffle is not None and not once
                    else (list(self._in_order(format, planned_set, parts, documents)), [])
                )
                sets.append(ArrangedSet(format, planned_set.split, planned_set.source, epoch, arranged_files, before))
        return sets

    def prepare(self, set_of: Mapping[str, ArrangedSet], lacking: Collection[str]) -> Rounds[list[str]]:
        """Runs what sets need before their items can be read (see Round.prepare). `set_of`: the set whose items a task reads, by
        the task's key."""
        sets = {id(file_set): file_set for key, file_set in set_of.items() if key in lacking}
        # Formats with equal files share them.
        tasks = {task.key: task for file_set in sets.values() for task in file_set.before}
        done = yield from do(Round(self.round, list(tasks.values()), SetFacts))
        self._buckets |= {key: one.folder / _BUCKETS_FILE for key, one in zip(tasks, done, strict=True)}
        return list(tasks)

    @property
    def _id_bytes(self) -> int:
        return self._documents.ids.itemsize

    def _packed_parts(self, planned: Sequence[PlannedSet]) -> Rounds[list[list[_Arranged]]]:
        """The parts of each set with their keys and packings."""
        parts = {id(part): part for planned_set in planned for part in planned_set.parts}
        keys = {i: self._part_key(part) for i, part in parts.items()}
        if self._files.pack is None:
            return [
                [_Arranged(part, keys[id(part)], None, part.n_documents, {}) for part in planned_set.parts]
                for planned_set in planned
            ]
        tasks = [
            PackTask(
                name=f"pack {part.choice.split or 'documents'} {n}",
                key=unit_key(stage="pack", part=keys[i]),
                part=part,
                pack=self._files.pack,
                documents=self._documents,
            )
            for n, (i, part) in enumerate(parts.items())
        ]
        results = yield from do(Round(self.round, tasks, SetFacts))
        result_of = dict(zip(parts, results, strict=True))
        for i, part in parts.items():
            of_split = self.packed.setdefault(part.choice.split or "", {})
            for name, n in result_of[i].facts.packed.items():
                of_split[name] = of_split.get(name, 0) + n
        arranged = {
            i: _Arranged(
                part,
                keys[i],
                result_of[i].folder / _SEGMENTS_FILE,
                result_of[i].facts.n_items,
                result_of[i].facts.of_sources,
            )
            for i, part in parts.items()
        }
        return [[arranged[id(part)] for part in planned_set.parts] for planned_set in planned]

    def _part_key(self, part: Part) -> str:
        numbers = [[unit.source_id] if self._files.source_ids else [] for unit in part.units]
        content = [[unit.content, unit.source, *number] for unit, number in zip(part.units, numbers, strict=True)]
        return unit_key(stage="part", units=content, choice=part.choice.as_key(part.units), **self._decides)

    def _in_order(
        self, format: Format, planned_set: PlannedSet, parts: Sequence[_Arranged], documents: Sequence[DocumentFiles]
    ) -> Iterator[ArrangedFile]:
        """The files of an unshuffled set: one or more for each part, or one for all."""
        is_packed = _is_index(format) or self.shape.length is not None
        n_items = [part.n_items if is_packed else part.part.n_documents for part in parts]
        ranges = cut(n_items, None if format.one_file else self._files.min_parts)
        slices = [
            _Slice(part, items, files)
            for part, ranges_of_part, files in zip(parts, ranges, documents, strict=True)
            for items in ranges_of_part
        ]
        n_items_of = dict(zip((part.key for part in parts), n_items, strict=True))
        for i, group in enumerate([slices] if format.one_file and parts else [[file_slice] for file_slice in slices]):
            number = group[0].documents.as_key if _is_index(format) else None
            places = [_places(ranges_of_part.arranged) for ranges_of_part in group] if format.has_places else None
            keys = [ranges_of_part.arranged.key for ranges_of_part in group]
            cuts = [
                [ranges_of_part.items.start, ranges_of_part.items.stop]
                for ranges_of_part in group
                if len(ranges_of_part.items) < n_items_of[ranges_of_part.arranged.key]
            ]
            cut_items = {"items": cuts} if cuts else {}
            key = unit_key(stage="write", format=format.name, number=number, parts=keys, places=places, **cut_items)
            yield ArrangedFile(f"{format.name} {_folder(planned_set)}{i}", key, partial(self._items, format, group))

    def _items(self, format: Format, slices: Sequence[_Slice]) -> Iterator[pa.RecordBatch]:
        for file_slice in slices:
            segments = file_slice.arranged.segments()
            if _is_index(format):
                assert segments is not None
                yield from index_of_part(file_slice.documents, segments, file_slice.items)
            else:
                rows = segments if self.shape.length is not None else None
                yield from items_of_part(
                    file_slice.arranged.part, rows, file_slice.items, self.shape, self._documents, self._files.pad_id
                )

    def _shuffled(
        self,
        format: Format,
        planned_set: PlannedSet,
        parts: Sequence[_Arranged],
        documents: Sequence[DocumentFiles],
        tokens_digest: str,
    ) -> tuple[list[ArrangedFile], list[BucketsTask]]:
        """The files of a shuffled set, and the tasks that put its items into buckets."""
        assert self._files.shuffle is not None
        n_items = sum(part.n_items for part in parts)
        n_tokens = sum(part.part.n_tokens for part in parts)
        if self.shape.length is not None and self._files.pad_id is not None:
            n_tokens = n_items * self.shape.length
        n_bytes = n_tokens * self._id_bytes
        kind = "index" if _is_index(format) else "file" if format.one_file else "files"
        file_bytes, n_files_min = self._files.file_bytes, self._files.min_parts or 1
        buckets = buckets_of(n_items, n_bytes, *((n_bytes + 1, 1) if format.one_file else (file_bytes, n_files_min)))
        order = planned_set.order(n_items, self._files.shuffle.seed, tokens_digest)
        first, before = 0, []
        for i, part in enumerate(parts):
            decides = {
                "part": part.key,
                "places": _places(part),
                "first": first,
                "order": order.key.hex(),
                "buckets": buckets,
            }
            before.append(
                BucketsTask(
                    name=f"shuffle {kind} {_folder(planned_set)}{i}",
                    key=unit_key(stage="shuffle", number=documents[i].as_key if _is_index(format) else None, **decides),
                    items=partial(self._items, format, [_Slice(part, range(part.n_items), documents[i])]),
                    first=first,
                    order=order,
                    buckets=buckets,
                )
            )
            first += part.n_items
        keys = [task.key for task in before]
        files = []
        for i in range(buckets.n_files if n_items else 0):
            key = unit_key(stage="write shuffled", format=format.name, parts=keys, file=i)
            files.append(
                ArrangedFile(f"{format.name} {_folder(planned_set)}{i}", key, partial(self._gathered, keys, i, buckets))
            )
        return files, before

    def _gathered(self, keys: Sequence[str], i: int, buckets: Buckets) -> Iterator[pa.RecordBatch]:
        return gather([self._buckets[key] for key in keys], i, buckets)


def _is_index(format: Format) -> bool:
    """Whether it is the index. Compares names, because a format from another process is a copy."""
    return format.name == INDEX_FORMAT.name


def _places(one: _Arranged) -> list[Starts]:
    """The shards and first rows of a part's units, which can change while the tokens stay the same."""
    return [unit.pieces for unit in one.part.units]


def _in_sequences(parts: Sequence[_Arranged], source: str) -> int:
    return sum(part.of_sources.get(source, 0) for part in parts)


def _folder(one: PlannedSet) -> str:
    return f"{one.name}/" if one.name else ""


def n_tokens_of(items: pa.RecordBatch) -> int:
    """The number of tokens in a batch of documents or sequences, or in the segments that an index lists."""
    names = items.schema.names
    lengths = pc.list_value_length(items["input_ids"]) if "input_ids" in names else items["n_tokens"].flatten()
    return int(pc.sum(lengths).as_py() or 0)
