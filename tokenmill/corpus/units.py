"""Cuts the corpus into work units. The cuts depend only on content and parameters, never on the number of workers.

A shard larger than `unit_bytes_max` is cut if its format can be read from the middle: .jsonl between lines, .parquet between
row groups. A shard of any other format is one unit, however large. Shards smaller than `unit_bytes_min` share units. A unit of
lines or of small shards ends, once it is half full, at a line or name whose checksum is low (content-defined chunking). So a
change moves only the ends near it.
"""

import hashlib
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import PurePosixPath
from typing import BinaryIO

import msgspec

from tokenmill.config.sources import DocumentSource
from tokenmill.corpus.parquet_files import read_metadata
from tokenmill.corpus.shard_files import open_shard
from tokenmill.corpus.shards import Shard, ShardRange, inside
from tokenmill.errors import CorpusError, unreadable
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.pointers import POINTER_BYTES_MAX, refuse_pointer
from tokenmill.storage.retries import with_retries

_READ_BYTES = 1 << 20
_LINE_FEED = 10
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
        """The first line of the documents in a .jsonl file, from 1."""
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
    """The units, sorted by the names of their outputs, and the sha256 of every shard."""

    units: list[Unit]
    sha256: dict[Shard, str]

    @property
    def n_bytes(self) -> int:
        """The size of all shards, in bytes."""
        return sum(unit.n_bytes for unit in self.units)


class _Cut(msgspec.Struct, frozen=True, array_like=True):
    """A shard's sha256, and its parts, each with its sha256. No parts: the shard is not cut."""

    sha256: str
    parts: list[tuple[ShardRange, str]]


class Stopped(Exception):
    """Raised when the build ends while a file is being read."""


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
    return Corpus(sorted(units, key=lambda unit: unit.output), sha256)


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
    for shard, found in cuts:
        if shard.n_bytes < unit_bytes_min:
            small.append(Piece(shard, None, found.sha256))
        elif found.parts:
            units += [_part_unit(shard, i, part, digest) for i, (part, digest) in enumerate(found.parts)]
        else:
            units.append(_unit([Piece(shard, None, found.sha256)]))
    small.sort(key=lambda piece: piece.shard.section)  # shards of different sources may be interleaved
    units += [_unit(group) for group in _groups(small, unit_bytes_max)]
    _refuse_clashes(units)
    return units


def sha256_of_shards(shards: Sequence[Shard], digests: Digests, unit_bytes_max: int, threads: int) -> dict[Shard, str]:
    """The sha256 of each shard. Files with a fact in `digests` are not read. Raises CorpusError."""
    cuts = _cuts(shards, digests, unit_bytes_max, threads)
    return {shard: found.sha256 for shard, found in zip(shards, cuts, strict=True)}


def _cuts(
    shards: Sequence[Shard], digests: Digests, unit_bytes_max: int, threads: int, read_bytes_max: int | None = None
) -> list[_Cut]:
    stop = threading.Event()
    unread = set() if read_bytes_max is None else _beyond(shards, digests, unit_bytes_max, read_bytes_max)

    def look(shard: Shard) -> _Cut:
        if shard in unread:
            return _Cut(UNREAD, [])
        read = partial(_look, shard, unit_bytes_max, stop.is_set)
        return with_retries(partial(digests.fact, shard.path, _word(shard, unit_bytes_max), _Cut, read))

    with ThreadPoolExecutor(threads, thread_name_prefix="digest") as pool:
        try:
            return list(pool.map(look, shards))
        finally:
            stop.set()


def _word(shard: Shard, unit_bytes_max: int) -> str:
    """The name under which `digests` stores the facts about a shard."""
    return f"parts {unit_bytes_max}" if _may_be_cut(shard, unit_bytes_max) else "sha256"


def _beyond(shards: Sequence[Shard], digests: Digests, unit_bytes_max: int, read_bytes_max: int) -> set[Shard]:
    """The shards without a fact that stay unread if the smallest are read first, `read_bytes_max` bytes in all."""
    unknown = [one for one in shards if digests.known(one.path, _word(one, unit_bytes_max), _Cut) is None]
    unknown.sort(key=lambda shard: shard.n_bytes)
    ends = accumulate(shard.n_bytes for shard in unknown)
    return {shard for shard, end in zip(unknown, ends, strict=True) if end > read_bytes_max}


def _may_be_cut(shard: Shard, unit_bytes_max: int) -> bool:
    kind = shard.kind
    return shard.n_bytes > unit_bytes_max and (kind.is_cut_at_lines or kind.format == "parquet")


def _look(shard: Shard, unit_bytes_max: int, stopped: Callable[[], bool]) -> _Cut:
    may_be_cut = _may_be_cut(shard, unit_bytes_max)
    parts: list[tuple[ShardRange, str]] = []
    whole = hashlib.sha256()
    try:
        with open_shard(shard) as file:
            n_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            if n_bytes != shard.n_bytes:
                raise CorpusError(
                    f"{shard.path}: has {n_bytes:,} bytes, and had {shard.n_bytes:,} when the build began. Run `tokenmill build` "
                    "again when it is at rest.",
                    code="TM207",
                )
            if n_bytes <= POINTER_BYTES_MAX:
                refuse_pointer(shard.name, file)
                file.seek(0)
            if may_be_cut and shard.kind.is_cut_at_lines:
                parts = list(_line_parts(file, shard.n_bytes, unit_bytes_max, whole.update, stopped))
            for block in _blocks(file, None, stopped):
                whole.update(block)
        if may_be_cut and shard.kind.format == "parquet":
            parts = [(part, whole.hexdigest()) for part in _row_group_parts(shard, unit_bytes_max)]
    except OSError as error:
        raise unreadable(str(shard.path), error) from None
    return _Cut(whole.hexdigest(), parts if len(parts) > 1 else [])


def _blocks(file: BinaryIO, n_bytes: int | None, stopped: Callable[[], bool]) -> Iterator[bytes]:
    """The next `n_bytes` of a file in blocks; None: to its end."""
    while n_bytes != 0 and (block := file.read(_READ_BYTES if n_bytes is None else min(n_bytes, _READ_BYTES))):
        if stopped():
            raise Stopped
        yield block
        n_bytes = None if n_bytes is None else n_bytes - len(block)


def _line_parts(
    file: BinaryIO, n_bytes: int, unit_bytes_max: int, take: Callable[[bytes], None], stopped: Callable[[], bool]
) -> Iterator[tuple[ShardRange, str]]:
    """The parts of a file of lines. `take`: is called with all bytes of the file."""
    start = first_row = 0
    first_line = 1
    while start < n_bytes:
        end = _end_of_part(file, start, n_bytes, unit_bytes_max)
        digest, lines = hashlib.sha256(), _Lines()
        file.seek(start)
        for block in _blocks(file, end - start, stopped):
            digest.update(block)
            take(block)
            lines.add(block)
        lines.end()
        yield ShardRange(start, end, end - start, first_row, first_line), digest.hexdigest()
        start, first_row, first_line = end, first_row + lines.n_lines - lines.n_blank, first_line + lines.n_lines


class _Lines:
    """Counts lines and blank lines in bytes that come in blocks."""

    def __init__(self) -> None:
        self.n_lines = self.n_blank = 0
        self._is_open = False  # whether a line is unfinished
        self._is_blank = True  # whether the unfinished line is blank so far

    def add(self, block: bytes) -> None:
        """Takes the next bytes, at least one."""
        import numpy as np

        text = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(text == _LINE_FEED)
        head = block[: ends[0] + 1] if len(ends) else block
        self._is_open, self._is_blank = True, self._is_blank and head.isspace()
        if not len(ends):
            return
        self.end()
        first, last = int(ends[0]), int(ends[-1])
        self.n_lines += len(ends) - 1
        if any(bytes([byte]).isspace() for byte in np.unique(text[ends[:-1] + 1])):  # otherwise no line is blank
            self.n_blank += sum(not line.strip() for line in block[first + 1 : last].split(b"\n"))
        rest = block[last + 1 :]
        self._is_open, self._is_blank = bool(rest), not rest.strip()

    def end(self) -> None:
        """Ends the open line, if there is one."""
        if self._is_open:
            self.n_lines, self.n_blank = self.n_lines + 1, self.n_blank + self._is_blank
        self._is_open, self._is_blank = False, True


def _end_of_part(file: BinaryIO, start: int, n_bytes: int, unit_bytes_max: int) -> int:
    """The end of a part, after a line: at most `unit_bytes_max` from its start, unless a line is longer than half of that."""
    if n_bytes - start <= unit_bytes_max:
        return n_bytes
    file.seek(start + unit_bytes_max // 2)
    while (piece := file.readline(_READ_BYTES)) and not piece.endswith(b"\n"):
        pass
    end = file.tell()
    line_bytes = checksum = 0
    while piece := file.readline(_READ_BYTES):
        line_bytes, checksum = line_bytes + len(piece), zlib.crc32(piece, checksum)
        if end + line_bytes - start > unit_bytes_max:
            break
        if not piece.endswith(b"\n") and end + line_bytes < n_bytes:
            continue
        end += line_bytes
        if ends_chunk(checksum, line_bytes, unit_bytes_max):
            break
        line_bytes = checksum = 0
    return end


def _row_group_parts(shard: Shard, unit_bytes_max: int) -> Iterator[ShardRange]:
    import pyarrow as pa

    try:
        metadata = read_metadata(shard)
    except pa.ArrowException:
        return  # reading the documents will report the error
    start = first_row = n_bytes = n_rows = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        group_bytes = sum(group.column(j).total_compressed_size for j in range(group.num_columns))
        if i > start and n_bytes + group_bytes > unit_bytes_max:
            yield ShardRange(start, i, n_bytes, first_row, 1)
            start, first_row, n_bytes, n_rows = i, first_row + n_rows, 0, 0
        n_bytes, n_rows = n_bytes + group_bytes, n_rows + group.num_rows
    yield ShardRange(start, metadata.num_row_groups, n_bytes, first_row, 1)


def _groups(small: Sequence[Piece], unit_bytes_max: int) -> Iterator[list[Piece]]:
    """Groups neighbouring small shards. Shards of different sources are not mixed."""
    group: list[Piece] = []
    group_bytes = 0
    for piece in small:
        cost = piece.n_bytes + _SHARD_COST_BYTES
        name = piece.shard.name
        is_other = bool(group) and source_name(piece.shard) != source_name(group[0].shard)
        if group and (is_other or group_bytes + cost > unit_bytes_max):
            yield group
            group, group_bytes = [], 0
        group.append(piece)
        group_bytes += cost
        if group_bytes * 2 >= unit_bytes_max and ends_chunk(zlib.crc32(name.encode()), cost, unit_bytes_max):
            yield group
            group, group_bytes = [], 0
    if group:
        yield group


def ends_chunk(checksum: int, n_bytes: int, unit_bytes_max: int) -> bool:
    """True on average once per eighth of a unit. Of 100 units that are half full, 2 become full before it is true."""
    return checksum * unit_bytes_max < n_bytes << 35


def source_name(shard: Shard) -> str:
    """The name under which a shard is counted: its source's in `sources`, or else its folder in data/raw."""
    return shard.named_source or source_folder(shard.name)


def source_folder(name: str) -> str:
    """The source of a shard without named sources: its first folder below data/raw, or "" directly in it. For objects: the first
    folder in the bucket."""
    return "/".join(PurePosixPath(inside(name)).parts[:-1][:1])


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
                f"{unit.pieces[0].shard.section}.glob: {other.pieces[0].shard.name} and {unit.pieces[0].shard.name} would both be "
                f"encoded into {unit.output}. Rename one of them."
            )
        if (n_bytes := max(len(os.fsencode(part)) for part in unit.output.split("/"))) > _NAME_BYTES_MAX:
            raise CorpusError(
                f"{unit.pieces[0].shard.name}: would be encoded into a file with a name of {n_bytes} bytes; allowed: "
                f"{_NAME_BYTES_MAX}. Give it a shorter name."
            )
    for output, unit in by_output.items():
        for folder in map(str, PurePosixPath(output).parents):
            if folder in by_output:
                raise CorpusError(
                    f"{unit.pieces[0].shard.name}: would be encoded into the folder {folder}, but "
                    f"{by_output[folder].pieces[0].shard.name} would be encoded into a file of that name. Rename one of them."
                )
