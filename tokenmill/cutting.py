"""Cuts the corpus into units: by content and parameters alone, never by the number of workers.

A shard larger than `unit_bytes_max` is cut where its format can be read from the middle: .jsonl between lines, .parquet
between row groups; any other is one unit however large it is. Shards smaller than `unit_bytes_min` share units. Where one
unit of lines or small shards ends is decided by a checksum of the line or name there, once the unit is half full; so a
change moves the ends beside it and no others.
"""

import hashlib
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedReader
from pathlib import PurePosixPath

import msgspec

from tokenmill.digests import Digests
from tokenmill.errors import CorpusError, unreadable
from tokenmill.files import open_regular
from tokenmill.retries import with_retries
from tokenmill.shards import Part, Shard

_RAW_PREFIX = "data/raw/"  # left out of the dataset's file names
_READ_BYTES = 1 << 20
_SHARD_COST_BYTES = 1024  # what a small shard adds to a unit beside its bytes, so that empty ones fill it, too


@dataclass(frozen=True)
class Piece:
    """Documents of one shard in a unit: all, or those of `part`. `digest`: sha256 of their bytes (of a .parquet: of the whole
    file)."""

    shard: Shard
    part: Part | None
    digest: str

    @property
    def n_bytes(self) -> int:
        """Bytes of the file."""
        return self.part.n_bytes if self.part else self.shard.n_bytes


@dataclass(frozen=True)
class Unit:
    """What one task handles. `output`: the name of its file in the dataset, which follows from the names of its shards."""

    name: str
    output: str
    pieces: tuple[Piece, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of the files."""
        return sum(piece.n_bytes for piece in self.pieces)


@dataclass(frozen=True)
class Corpus:
    """The units in the order of their outputs' names, and the sha256 of every shard."""

    units: list[Unit]
    sha256: dict[Shard, str]


class _Cut(msgspec.Struct, frozen=True, array_like=True):
    """A shard's sha256, and its parts with theirs; none: the shard is not cut."""

    sha256: str
    parts: list[tuple[Part, str]]


class _Stopped(Exception):
    """The build ends while a file is read."""


def cut(shards: Sequence[Shard], digests: Digests, unit_bytes_min: int, unit_bytes_max: int, threads: int) -> Corpus:
    """The units of these shards.

    Files that `digests` does not know are read. Raises CorpusError for two units of one output name, and for a file that
    cannot be read or changes meanwhile.
    """
    stop = threading.Event()

    def look(shard: Shard) -> _Cut:
        word = f"cut {unit_bytes_max}" if _may_be_cut(shard, unit_bytes_max) else "sha256"
        return with_retries(lambda: digests.fact(shard.path, word, _Cut, lambda: _look(shard, unit_bytes_max, stop)))

    with ThreadPoolExecutor(threads, thread_name_prefix="digest") as pool:
        try:
            cuts = list(pool.map(look, shards))
        finally:
            stop.set()
    digests.save()
    units: list[Unit] = []
    small: list[Piece] = []
    for shard, found in zip(shards, cuts, strict=True):
        if shard.n_bytes < unit_bytes_min:
            small.append(Piece(shard, None, found.sha256))
        elif found.parts:
            units += [_part_unit(shard, i, part, digest) for i, (part, digest) in enumerate(found.parts)]
        else:
            units.append(_unit([Piece(shard, None, found.sha256)]))
    units += [_unit(group) for group in _groups(small, unit_bytes_max)]
    _refuse_clashes(units)
    sha256 = {shard: found.sha256 for shard, found in zip(shards, cuts, strict=True)}
    return Corpus(sorted(units, key=lambda unit: unit.output), sha256)


def _may_be_cut(shard: Shard, unit_bytes_max: int) -> bool:
    return shard.n_bytes > unit_bytes_max and shard.name.endswith((".jsonl", ".parquet"))


def _look(shard: Shard, unit_bytes_max: int, stop: threading.Event) -> _Cut:
    try:
        parts: list[tuple[Part, str]] = []
        digest = hashlib.sha256()
        with open(shard.path, "rb", opener=open_regular) as file:
            if _may_be_cut(shard, unit_bytes_max) and shard.name.endswith(".jsonl"):
                parts = list(_line_parts(file, shard.n_bytes, unit_bytes_max, stop))
                file.seek(0)
            while block := file.read(_READ_BYTES):
                _go_on(stop)
                digest.update(block)
        if _may_be_cut(shard, unit_bytes_max) and shard.name.endswith(".parquet"):
            parts = [(part, digest.hexdigest()) for part in _row_group_parts(shard, unit_bytes_max)]
    except OSError as error:
        raise unreadable(str(shard.path), error) from None
    return _Cut(digest.hexdigest(), parts if len(parts) > 1 else [])


def _line_parts(
    file: BufferedReader, n_bytes: int, unit_bytes_max: int, stop: threading.Event
) -> Iterator[tuple[Part, str]]:
    start = first_row = 0
    first_line = 1
    while start < n_bytes:
        end = _end_of_part(file, start, n_bytes, unit_bytes_max)
        digest = hashlib.sha256()
        at, n_lines, n_rows, is_blank = start, 0, 0, True
        file.seek(start)
        while at < end and (piece := file.readline(_READ_BYTES)):
            _go_on(stop)
            digest.update(piece)
            at, is_blank = at + len(piece), is_blank and piece.isspace()
            if piece.endswith(b"\n") or at == end:
                n_lines, n_rows, is_blank = n_lines + 1, n_rows + (not is_blank), True
        yield Part(start, end, end - start, first_row, first_line), digest.hexdigest()
        start, first_row, first_line = end, first_row + n_rows, first_line + n_lines


def _end_of_part(file: BufferedReader, start: int, n_bytes: int, unit_bytes_max: int) -> int:
    """Behind the last line of the part: at most `unit_bytes_max` from its start, where no line is longer than half of that."""
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
        if _ends_unit(checksum, line_bytes, unit_bytes_max):
            break
        line_bytes = checksum = 0
    return end


def _row_group_parts(shard: Shard, unit_bytes_max: int) -> Iterator[Part]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(shard.path)
    except pa.ArrowException:
        return  # whoever reads its documents says what is wrong
    start = first_row = n_bytes = n_rows = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        group_bytes = sum(group.column(j).total_compressed_size for j in range(group.num_columns))
        if i > start and n_bytes + group_bytes > unit_bytes_max:
            yield Part(start, i, n_bytes, first_row, 1)
            start, first_row, n_bytes, n_rows = i, first_row + n_rows, 0, 0
        n_bytes, n_rows = n_bytes + group_bytes, n_rows + group.num_rows
    yield Part(start, metadata.num_row_groups, n_bytes, first_row, 1)


def _groups(small: Sequence[Piece], unit_bytes_max: int) -> Iterator[list[Piece]]:
    """Small shards side by side, those of one top folder together."""
    group: list[Piece] = []
    group_bytes = 0
    for piece in small:
        cost = piece.n_bytes + _SHARD_COST_BYTES
        name = piece.shard.name
        if group and (_top(name) != _top(group[0].shard.name) or group_bytes + cost > unit_bytes_max):
            yield group
            group, group_bytes = [], 0
        group.append(piece)
        group_bytes += cost
        if group_bytes * 2 >= unit_bytes_max and _ends_unit(zlib.crc32(name.encode()), cost, unit_bytes_max):
            yield group
            group, group_bytes = [], 0
    if group:
        yield group


def _ends_unit(checksum: int, n_bytes: int, unit_bytes_max: int) -> bool:
    """True once in an eighth of a unit: of the units that are half full, 2 in 100 grow full before one ends so."""
    return checksum * unit_bytes_max < n_bytes << 35


def _top(name: str) -> str:
    return "/".join(PurePosixPath(name.removeprefix(_RAW_PREFIX)).parts[:-1][:1])


def _unit(pieces: Sequence[Piece]) -> Unit:
    more = f"+{len(pieces) - 1}" if len(pieces) > 1 else ""
    first = pieces[0].shard.name
    output = _output(first)
    return Unit(first + more, f"{output}{more}.parquet", tuple(pieces))


def _part_unit(shard: Shard, i: int, part: Part, digest: str) -> Unit:
    return Unit(f"{shard.name}[{i}]", f"{_output(shard.name)}.{i:05}.parquet", (Piece(shard, part, digest),))


def _output(name: str) -> str:
    parts = [part for part in PurePosixPath(name.removeprefix(_RAW_PREFIX)).parts if part not in ("..", "/")]
    return "/".join(parts).removesuffix(".parquet")


def _refuse_clashes(units: Sequence[Unit]) -> None:
    by_output: dict[str, Unit] = {}
    for unit in units:
        other = by_output.setdefault(unit.output, unit)
        if other is not unit:
            raise CorpusError(
                f"source.glob: {other.pieces[0].shard.name} and {unit.pieces[0].shard.name} would both be encoded into "
                f"{unit.output}. Rename one of them."
            )


def _go_on(stop: threading.Event) -> None:
    if stop.is_set():
        raise _Stopped
