"""Cuts the corpus into work units. The cuts depend only on content and parameters, never on the number of workers.

A shard larger than `unit_bytes_max` is cut if its format can be read from the middle: .jsonl between lines, .csv and .tsv between
records, .parquet between row groups. A shard of any other format is one unit, however large. Shards smaller than `unit_bytes_min`
share units. A unit of lines or of small shards ends, once it is half full, at a line or name whose checksum is low (content-defined
chunking). So a change moves only the ends near it.
"""

import hashlib
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate, groupby
from pathlib import Path, PurePosixPath

import msgspec

from tokenmill.config.sources import DocumentSource
from tokenmill.corpus.other_kinds import head_of, may_be_text, refuse_pointer
from tokenmill.corpus.shard_files import open_shard
from tokenmill.corpus.shard_ranges import blocks, ends_chunk, line_ranges, row_group_ranges
from tokenmill.corpus.shards import Shard, ShardRange, inside
from tokenmill.errors import CorpusError, unreadable
from tokenmill.storage.atomic import md5_file
from tokenmill.storage.file_facts import Digests, Signature
from tokenmill.storage.retries import with_retries
from tokenmill.storage.urls import StoredObject

_NAME_BYTES_MAX = 255  # the limit of file systems
UNREAD = ""  # the digest of an unread file
_SHARD_COST_BYTES = 1024  # added to each small shard's size, so that empty shards fill units too


@dataclass(frozen=True)
class Piece:
    """The documents of one shard in a unit: all of them, or those of `part`. `digest`: the sha256 of their bytes (for .parquet, of
    the whole file). `damage`: why they cannot be read; None if not known to be damaged."""

    shard: Shard
    part: ShardRange | None
    digest: str
    damage: str | None = None

    @property
    def first_row(self) -> int:
        """The row of the first document in the shard, from 0."""
        return self.part.first_row if self.part else 0

    @property
    def first_line(self) -> int:
        """The first line of the documents in a .jsonl or .csv file, from 1."""
        return self.part.first_line if self.part else 1

    @property
    def n_bytes(self) -> int:
        """The size of the piece in file bytes."""
        return self.part.n_bytes if self.part else self.shard.n_bytes


@dataclass(frozen=True)
class Unit:
    """A work unit: documents of one source that are processed together. `output`: the name of its file in the dataset, made from
    its shards' names."""

    name: str
    output: str
    pieces: tuple[Piece, ...]

    def without(self, damaged: Mapping[int, str]) -> "Unit":
        """The unit with these pieces marked as damaged. `damaged`: the reason, by the index of the piece."""
        pieces = (replace(piece, damage=damaged.get(i, piece.damage)) for i, piece in enumerate(self.pieces))
        return replace(self, pieces=tuple(pieces))

    @property
    def source(self) -> DocumentSource:
        """The source of its documents: how they are read, and how often each is used."""
        source = self.pieces[0].shard.source
        assert source is not None
        return source

    @property
    def n_bytes(self) -> int:
        """The size of all pieces in file bytes."""
        return sum(piece.n_bytes for piece in self.pieces)


@dataclass(frozen=True)
class Corpus:
    """The units, sorted by the names of their outputs, the sha256 of every shard, and the signature that its file had then; shards
    that were not read have none."""

    units: list[Unit]
    sha256: dict[Shard, str]
    seen: Mapping[Path | StoredObject, Signature]

    @property
    def n_bytes(self) -> int:
        """The size of all shards, in bytes."""
        return sum(unit.n_bytes for unit in self.units)


class _Cut(msgspec.Struct, frozen=True, array_like=True):
    """A shard's sha256, and its parts, each with its sha256. No parts: the shard is not cut."""

    sha256: str
    parts: list[tuple[ShardRange, str]]


def cut(
    shards: Sequence[Shard],
    digests: Digests,
    unit_bytes_min: int,
    unit_bytes_max: int,
    threads: int,
    read_bytes_max: int | None = None,
) -> Corpus:
    """Cuts these shards into units.

    Reads files without a fact in `digests`. `read_bytes_max`: the most bytes to read, small files first; further files get the
    digest UNREAD and are not cut. Raises CorpusError for two units with the same output name, and for a file that cannot be read or
    changes meanwhile. Raises Stopped.
    """
    cuts = _cuts(shards, digests, unit_bytes_max, threads, read_bytes_max)
    digests.save()
    units = _units(zip(shards, cuts, strict=True), unit_bytes_min, unit_bytes_max)
    sha256 = {shard: found.sha256 for shard, found in zip(shards, cuts, strict=True)}
    seen = {shard.path: digests.seen[shard.path] for shard in shards if shard.path in digests.seen}
    return Corpus(sorted(units, key=lambda unit: unit.output), sha256, seen)


def refuse_clashes(shards: Sequence[Shard], unit_bytes_min: int, unit_bytes_max: int) -> None:
    """Raises CorpusError as `cut` does for output names that are equal, too long, or a folder of another. Uses only names and sizes
    of files."""
    whole = _Cut("", [])
    several = _Cut("", [(ShardRange(0, 0, 0, 0, 1), "")])
    _units(
        ((shard, several if _may_be_cut(shard, unit_bytes_max) else whole) for shard in shards),
        unit_bytes_min,
        unit_bytes_max,
    )


def _units(cuts: Iterable[tuple[Shard, _Cut]], unit_bytes_min: int, unit_bytes_max: int) -> list[Unit]:
    units: list[Unit] = []
    small: list[Piece] = []
    for shard, shard_cut in cuts:
        if shard.n_bytes < unit_bytes_min:
            small.append(Piece(shard, None, shard_cut.sha256))
        elif shard_cut.parts:
            units += [_part_unit(shard, i, part, digest) for i, (part, digest) in enumerate(shard_cut.parts)]
        else:
            units.append(_unit([Piece(shard, None, shard_cut.sha256)]))
    small.sort(key=lambda piece: piece.shard.section)  # shards of different sources may be interleaved
    units += [_unit(group) for group in _groups(small, unit_bytes_max)]
    _refuse_clashes(units)
    return units


def sha256_of_shards(shards: Sequence[Shard], digests: Digests, unit_bytes_max: int, threads: int) -> dict[Shard, str]:
    """The sha256 of each shard. Files with a fact in `digests` are not read. Raises CorpusError."""
    cuts = _cuts(shards, digests, unit_bytes_max, threads)
    return {shard: found.sha256 for shard, found in zip(shards, cuts, strict=True)}


def md5_of_file(path: str, shards: Mapping[str, Shard], digests: Digests, unit_bytes_max: int) -> str:
    """The md5 of a file's bytes, in hex. Of a shard without facts in `digests`, the same reading finds them, so that `cut` need not
    read it. `shards`: by absolute path."""
    shard, md5 = shards.get(path), None
    if shard is None:
        return md5_file(Path(path))

    def look() -> _Cut:
        nonlocal md5
        md5 = hashlib.md5(usedforsecurity=False)
        return _look(shard, unit_bytes_max, lambda: False, md5.update)

    with suppress(CorpusError):  # the stage that needs the documents will raise it again
        digests.fact(shard.path, _word(shard, unit_bytes_max), _Cut, look)
        if md5 is not None:
            return md5.hexdigest()
    return md5_file(Path(path))


def _cuts(
    shards: Sequence[Shard], digests: Digests, unit_bytes_max: int, threads: int, read_bytes_max: int | None = None
) -> list[_Cut]:
    stop = threading.Event()
    known = {shard: digests.known(shard.path, _word(shard, unit_bytes_max), _Cut) for shard in shards}
    unknown = [shard for shard in shards if known[shard] is None]
    if read_bytes_max is not None:
        unknown = _smallest(unknown, read_bytes_max)

    def look(shard: Shard) -> _Cut:
        read = partial(_look, shard, unit_bytes_max, stop.is_set)
        return with_retries(partial(digests.fact, shard.path, _word(shard, unit_bytes_max), _Cut, read))

    with ThreadPoolExecutor(threads, thread_name_prefix="digest") as pool:
        try:
            known.update(zip(unknown, pool.map(look, unknown), strict=True))
        finally:
            stop.set()
    return [known[shard] or _Cut(UNREAD, []) for shard in shards]


def _word(shard: Shard, unit_bytes_max: int) -> str:
    """The name under which `digests` stores the facts about a shard."""
    return f"parts {unit_bytes_max}" if _may_be_cut(shard, unit_bytes_max) else "sha256"


def _smallest(shards: Sequence[Shard], n_bytes_max: int) -> list[Shard]:
    """The smallest shards, as many as have `n_bytes_max` bytes in all."""
    ordered = sorted(shards, key=lambda shard: shard.n_bytes)
    ends = accumulate(shard.n_bytes for shard in ordered)
    return [shard for shard, end in zip(ordered, ends, strict=True) if end <= n_bytes_max]


def _may_be_cut(shard: Shard, unit_bytes_max: int) -> bool:
    kind = shard.kind
    return shard.n_bytes > unit_bytes_max and (kind.is_cut_at_lines or kind.format == "parquet")


def _look(
    shard: Shard, unit_bytes_max: int, stopped: Callable[[], bool], also: Callable[[bytes], None] | None = None
) -> _Cut:
    """Reads a shard once. `also`: is called with all of its bytes."""
    may_be_cut = _may_be_cut(shard, unit_bytes_max)
    parts: list[tuple[ShardRange, str]] = []
    whole = hashlib.sha256()

    def take(block: bytes) -> None:
        whole.update(block)
        if also is not None:
            also(block)

    try:
        with open_shard(shard) as file:
            n_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            if n_bytes != shard.n_bytes:
                raise CorpusError(
                    str(shard.path),
                    f"expected {shard.n_bytes:,} bytes, as when the build began; found {n_bytes:,}.",
                    "Run `tokenmill build` again when nothing writes to it any more.",
                    code="TM207",
                )
            head = head_of(file)
            refuse_pointer(shard, head)
            if may_be_cut and shard.kind.is_cut_at_lines and may_be_text(head):
                parts = list(line_ranges(file, shard.n_bytes, unit_bytes_max, take, stopped, shard.kind.separator))
            for block in blocks(file, None, stopped):
                take(block)
        if may_be_cut and shard.kind.format == "parquet":
            parts = [(part, whole.hexdigest()) for part in row_group_ranges(shard, unit_bytes_max)]
    except OSError as error:
        raise unreadable(str(shard.path), error) from None
    return _Cut(whole.hexdigest(), parts if len(parts) > 1 else [])


def _groups(small: Sequence[Piece], unit_bytes_max: int) -> Iterator[list[Piece]]:
    """Groups neighbouring small shards. Shards of different sources are not mixed."""
    for _source, some in groupby(small, lambda piece: source_name(piece.shard)):
        group: list[Piece] = []
        group_bytes = 0
        for piece in some:
            cost = piece.n_bytes + _SHARD_COST_BYTES
            if group and group_bytes + cost > unit_bytes_max:
                yield group
                group, group_bytes = [], 0
            group.append(piece)
            group_bytes += cost
            is_end = ends_chunk(zlib.crc32(piece.shard.name.encode()), cost, unit_bytes_max)
            if group_bytes * 2 >= unit_bytes_max and is_end:
                yield group
                group, group_bytes = [], 0
        if group:
            yield group


def source_name(shard: Shard) -> str:
    """The name under which a shard is counted: its source's in `sources`, or else its folder in data/raw."""
    return shard.named_source or source_folder(shard.name)


def source_folder(name: str) -> str:
    """The source of a shard without named sources: its first folder below data/raw, or "" directly in it. For objects: the first
    folder in the bucket; for files beside the project, the first one that has a name.

    >>> source_folder("data/raw/web/a/b.txt"), source_folder("data/raw/b.txt"), source_folder("../other/raw/b.txt")
    ('web', '', 'other')
    """
    below = inside(name)
    return _first_folder(below[: below.rfind("/") + 1])


@lru_cache
def _first_folder(folder: str) -> str:
    return next((part for part in PurePosixPath(folder).parts if part not in ("..", "/")), "")


def _unit(pieces: Sequence[Piece]) -> Unit:
    more = f"+{len(pieces) - 1}" if len(pieces) > 1 else ""
    first = pieces[0].shard.name
    output = _output(first)
    return Unit(first + more, f"{output}{more}.parquet", tuple(pieces))


def _part_unit(shard: Shard, i: int, part: ShardRange, digest: str) -> Unit:
    return Unit(f"{shard.name}[{i}]", f"{_output(shard.name)}.{i:05}.parquet", (Piece(shard, part, digest),))


def _output(name: str) -> str:
    parts = [part for part in PurePosixPath(inside(name)).parts if part not in ("..", "/")]
    # pyarrow, pandas and Spark leave out names that begin so when they read a folder.
    visible = [f"x{part}" if part.startswith(("_", ".")) else part for part in parts]
    return "/".join(visible).removesuffix(".parquet")


def _refuse_clashes(units: Sequence[Unit]) -> None:
    by_output: dict[str, Unit] = {}
    for unit in units:
        other = by_output.setdefault(unit.output, unit)
        if other is not unit:
            raise CorpusError(
                f"{unit.pieces[0].shard.section}.glob",
                f"{other.pieces[0].shard.name} and {unit.pieces[0].shard.name} would both be encoded into "
                f"{unit.output}.",
                "Rename one of them.",
            )
        if (n_bytes := max(len(os.fsencode(part)) for part in unit.output.split("/"))) > _NAME_BYTES_MAX:
            raise CorpusError(
                unit.pieces[0].shard.name,
                f"would be encoded into a file with a name of {n_bytes} bytes; allowed: {_NAME_BYTES_MAX}.",
                "Give it a shorter name.",
            )
    for output, unit in by_output.items():
        for folder in map(str, PurePosixPath(output).parents):
            if folder in by_output:
                raise CorpusError(
                    unit.pieces[0].shard.name,
                    f"would be encoded into the folder {folder}, but {by_output[folder].pieces[0].shard.name} would "
                    "be encoded into a file of that name.",
                    "Rename one of them.",
                )
