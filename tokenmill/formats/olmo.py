"""olmo: `.npy` with the ids, which has no header in spite of its name, and `.csv.gz` with a line for each document.

The layout is that of python/dolma/tokenizer/memmap_writer.py: the lines are start,end,id,src,loc with positions in tokens, and
the line of the document in its file from 1. The reader of OLMo-core cuts the lines at commas and takes the first two parts
(olmo_core/data/utils.py), so no name may have a line break in it: control characters and backslashes are escaped. Of packed
sequences a line is a segment; its id is the number of the sequence from 0, its loc that of the segment in the sequence from 1.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import batches_of
from tokenmill.formats.files import Put, new_file
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import checking, refuse_lists
from tokenmill.formats.sidecar import new_sidecar
from tokenmill_reader.formats.arrays import whole_values
from tokenmill_reader.formats.columns import flat_of
from tokenmill_reader.formats.items import REBUILD, Flat, Shape, segment_ends
from tokenmill_reader.formats.olmo import DATA, LINES, offsets_of, other_ids, read_flat
from tokenmill_reader.regular_files import open_regular

_NAMES = ("start", "end", "id", "src", "loc")
_MEMBER_BYTES = 1 << 22  # of text in a gzip member
_LEVEL = 3  # 80 MB/s, and no larger than with 6 at 39 MB/s
_BLOCK_BYTES = 1 << 24  # of text read at a time; a line must be shorter
_ESCAPED = r"[\\\x00-\x1f\x7f-\x9f\x{2028}\x{2029}]"  # a backslash, and whatever some reader takes for a line break
_CHARACTER = re.compile("[\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ESCAPE = re.compile(r"\\(?:\\|x([0-9a-f]{2})|u([0-9a-f]{4}))")


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{DATA}"
    with (
        new_part(path, folder / f"{stem}{LINES}") as add_ids,
        new_sidecar(folder, stem, shape, with_starts=False) as add_sources,
    ):

        def add(batch: pa.RecordBatch) -> None:
            add_ids(batch)
            add_sources(batch)

        yield checking(add, shape, path)


@contextmanager
def new_part(data: Path, lines: Path) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yields a function that adds a batch of checked items to new files of ids and of lines."""
    n_items = n_tokens = 0
    with new_file(data) as put, new_file(lines) as put_packed, _gzip(put_packed) as put_text:

        def add(batch: pa.RecordBatch) -> None:
            nonlocal n_items, n_tokens
            flat = flat_of(batch)
            put(flat.ids)
            ends = n_tokens + segment_ends(flat)
            begins = np.append(np.int64(n_tokens), ends[:-1])[: ends.size]
            put_text(_lines([begins, ends], *_places(batch, flat, n_items)))
            n_items, n_tokens = n_items + batch.num_rows, n_tokens + int(flat.offsets[-1])

        yield add


def _places(batch: pa.RecordBatch, flat: Flat, n_before: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The columns id, src and loc."""
    if flat.starts is None:
        shards = batch.column("shard").dictionary_encode()
        ids = batch.column("id")
        names = _quoted(ids) if pa.types.is_string(ids.type) else ids
        return names, _quoted(shards.dictionary).take(shards.indices), pc.add(batch.column("row"), 1)
    first = flat.starts.offsets
    n_segments = np.diff(first)
    numbers = np.repeat(np.arange(n_before, n_before + n_segments.size), n_segments)
    segments = np.arange(first[-1]) - np.repeat(first[:-1], n_segments) + 1
    return pa.array(numbers), pa.nulls(len(numbers), pa.string()).fill_null(""), pa.array(segments)


def _lines(positions: Sequence[npt.NDArray[np.int64]], *places: pa.Array) -> memoryview:
    """The text of the lines."""
    columns = [column.cast(pa.large_string()) for column in (*map(pa.array, positions), *places)]
    comma, nothing, end = (pa.scalar(text, pa.large_string()) for text in (",", "", "\n"))
    ended = pc.binary_join_element_wise(pc.binary_join_element_wise(*columns, comma), nothing, end)
    _, offsets, text = ended.buffers()
    n_bytes = int(np.frombuffer(offsets, np.int64)[len(ended)]) if len(ended) else 0
    return memoryview(text or b"")[:n_bytes]


def _quoted(names: pa.StringArray) -> pa.StringArray:
    """Escapes names for a line, and quotes those with a comma or a quote."""
    names = _replaced(names, _ESCAPED, _escaped)
    in_quotes = pc.match_substring_regex(names, '[",]')
    if not pc.any(in_quotes).as_py():
        return names
    return pc.if_else(
        in_quotes, pc.binary_join_element_wise('"', pc.replace_substring(names, '"', '""'), '"', ""), names
    )


def _replaced(names: pa.StringArray, pattern: str, replace: Callable[[str], str]) -> pa.StringArray:
    """Replaces the names that match the pattern one by one, because they are rare."""
    is_match = pc.match_substring_regex(names, pattern)
    if not pc.any(is_match).as_py():
        return names
    new = [replace(name) for name in names.filter(is_match).to_pylist()]
    return pc.replace_with_mask(names, is_match, pa.array(new, pa.string()))


def _escaped(name: str) -> str:
    r"""Doubles backslashes, and writes control characters as their numbers.

    >>> print(_escaped("a\\b\nc\u2028"))
    a\\b\x0ac\u2028
    """
    return _CHARACTER.sub(_escape, name)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return "\\\\" if found[0] == "\\" else f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def _unescaped(name: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1] or found[2] or "5c", 16)), name)


@contextmanager
def _gzip(put: Put) -> Iterator[Put]:
    """Yields a function that compresses text into gzip members of equal size with pyarrow's codec, because the bytes of Python's
    gzip depend on the machine's zlib."""
    codec = pa.Codec("gzip", compression_level=_LEVEL)  # its header has neither time nor name
    held = bytearray()

    def add(text: Any) -> None:
        held.extend(text)
        while len(held) > _MEMBER_BYTES:
            put(codec.compress(bytes(held[:_MEMBER_BYTES]), asbytes=True))
            del held[:_MEMBER_BYTES]

    yield add
    put(codec.compress(bytes(held), asbytes=True))


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    path = folder / f"{stem}{DATA}"
    if shape.length is None:
        yield from read_documents(path, folder / f"{stem}{LINES}", shape)
    else:
        yield from batches_of(read_flat(folder, stem, shape)[0], shape, path)


def read_documents(
    data: Path, lines: Path, shape: Shape, mask: npt.NDArray[np.int8] | None = None
) -> Iterator[pa.RecordBatch]:
    """The documents of a part, with the shard and row of each. `mask`: the loss mask of all ids. Raises ValidationError for files
    that are malformed or do not fit each other."""
    ids = whole_values(data, shape.ids)
    n_items = 0
    for documents, offsets in _documents(lines, ids.size, shape):
        names = documents.column("id")
        columns = {
            "id": _replaced(names, r"\\", _unescaped) if shape.has_names else names,
            "shard": _replaced(documents.column("src"), r"\\", _unescaped),
            "row": pc.subtract(documents.column("loc"), 1),
        }
        here = slice(offsets[0], offsets[-1])
        flat = Flat(ids[here], offsets - offsets[0], loss_mask=None if mask is None else mask[here])
        yield from batches_of(flat, shape, data, columns, n_items)
        n_items += documents.num_rows


def _documents(path: Path, n_ids: int, shape: Shape) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]:
    """The lines batch by batch, and where their documents begin in the ids, with the end of the last.

    Raises ValidationError if one does not begin where the last one ended, or the last one does not end with the ids.
    """
    end = n_lines = 0
    for lines in _csv(path, shape):
        offsets = offsets_of(lines.column("start").to_numpy(), lines.column("end").to_numpy(), end, n_lines, path)
        if offsets[-1] > n_ids:
            break  # before a missing document is read
        yield lines, offsets
        end, n_lines = int(offsets[-1]), n_lines + lines.num_rows
    else:
        if end == n_ids:
            return
    raise other_ids(path, n_ids)


def _csv(path: Path, shape: Shape) -> Iterator[pa.RecordBatch]:
    id_type = pa.string() if shape.has_names else pa.int64()
    types = dict(zip(_NAMES, (pa.int64(), pa.int64(), id_type, pa.string(), pa.int64()), strict=True))
    convert = pcsv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False)
    read = pcsv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=list(_NAMES))
    try:
        with open(path, "rb", opener=open_regular) as raw, gzip.GzipFile(fileobj=raw) as file:
            if not file.peek(1):
                return
            for batch in pcsv.open_csv(pa.PythonFile(cast(BinaryIO, file), "r"), read, convert_options=convert):
                if batch.num_rows:
                    yield batch
    except FileNotFoundError:
        raise ValidationError(path, "is missing.", REBUILD) from None
    except (OSError, EOFError, zlib.error, pa.ArrowException, ValueError) as error:
        raise ValidationError(path, f"cannot be read: {error}.", REBUILD) from None


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    return refuse_lists(shape, "olmo")


OLMO = Format("olmo", (DATA, LINES), _write, _read, read_flat, _refusal, has_places=True)
