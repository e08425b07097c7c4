"""olmo: `.npy` with the ids, which has no header in spite of its name, and `.csv.gz` with a line for each document.

The layout is that of python/dolma/tokenizer/memmap_writer.py: the lines are start,end,id,src,loc with positions in tokens. Of
packed sequences a line is a segment; its id is the number of the sequence from 0, its loc that of the segment in the sequence from
1. Names have their line breaks escaped, so each line feed ends a line, and a name may have commas in it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.arrays import whole_values
from tokenmill_reader.formats.items import REBUILD, Flat, Lists, Shape, check_segments
from tokenmill_reader.regular_files import open_regular

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenmill_reader.array_types import Longs

DATA = ".npy"
LINES = ".csv.gz"

_BLOCK_BYTES = 1 << 24  # of text read at a time
_N_COMMAS = 4  # of a line of a segment, which has no names
_DIGITS_MAX = 18  # so that a number fits int64


def read_flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    """The items of a part. Raises ValidationError for files that are not as they should be."""
    ids = whole_values(folder / f"{stem}{DATA}", shape.ids)
    path = folder / f"{stem}{LINES}"
    begins, ends, numbers, segments = _lines(path, ids.size, shape.length is not None)
    if shape.length is None:
        return [Flat(ids, np.append(np.int64(0), ends))]
    first = np.flatnonzero(segments == 1)
    n_segments = np.diff(np.append(first, segments.size))
    wrong = np.ones(segments.size, bool)
    if first.size and first[0] == 0:
        expected = np.arange(segments.size) - np.repeat(first, n_segments) + 1
        wrong = (segments != expected) | (numbers != np.repeat(np.arange(first.size), n_segments))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValidationError(
            f"{path}: line {row + 1:,}",
            f"expected the next segment of a sequence, or the first of the next one; found segment {segments[row]} "
            f"of {numbers[row]}.",
            REBUILD,
        )
    offsets = np.append(begins[first], np.int64(ids.size))
    starts = (begins - np.repeat(begins[first], n_segments)).astype(np.int32)
    found = Flat(ids, offsets, Lists(starts, np.append(first, segments.size)))
    check_segments(found, shape, path)
    return [found]


def offsets_of(begins: Longs, ends: Longs, end: int, n_lines: int, path: Path) -> Longs:
    """Where the documents or segments of some lines begin in the ids, with the end of the last. `end`: where the line before these
    ended; `n_lines`: how many lines are before these. Raises ValidationError if one does not begin where the one before ended."""
    offsets: Longs = np.append(np.int64(end), ends)
    wrong = (begins != offsets[:-1]) | (ends < begins)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValidationError(
            f"{path}: line {n_lines + row + 1:,}",
            f"expected a document that begins at {offsets[row]:,}; found {begins[row]:,} to {ends[row]:,}.",
            REBUILD,
        )
    return offsets


def other_ids(path: Path, n_ids: int) -> ValidationError:
    """The error for lines that do not end with the ids. `n_ids`: how many there are."""
    data = f"{path.name[: -len(LINES)]}{DATA}"
    return ValidationError(path, f"expected lines of {n_ids:,} ids, as {data} has; found others.", REBUILD)


def _lines(path: Path, n_ids: int, is_packed: bool) -> tuple[Longs, Longs, Longs, Longs]:
    """The columns start and end of all lines, and of packed sequences the columns id and loc, which are otherwise empty. Raises
    ValidationError if a line does not begin where the one before ended, or the last one does not end with the ids."""
    blocks: list[list[Longs]] = [[np.empty(0, np.int64)] * 4]
    end = n_lines = 0
    for text in _blocks(path):
        try:
            columns = _numbers(text, is_packed)
        except ValueError as error:
            raise ValidationError(path, f"cannot be read: after {n_lines:,} lines, {error}.", REBUILD) from None
        end = int(offsets_of(columns[0], columns[1], end, n_lines, path)[-1])
        if end > n_ids:
            break
        n_lines += len(columns[0])
        blocks.append(columns)
    if end != n_ids:
        raise other_ids(path, n_ids)
    starts, ends, numbers, segments = (np.concatenate(column) for column in zip(*blocks))
    return starts, ends, numbers, segments


def _blocks(path: Path) -> Iterator[npt.NDArray[np.uint8]]:
    """The text of a file in blocks of whole lines. Raises ValidationError for a file that cannot be read, or is cut off."""
    held = b""
    try:
        with open(path, "rb", opener=open_regular) as raw, gzip.GzipFile(fileobj=raw) as file:
            while block := file.read(_BLOCK_BYTES):
                whole, line_feed, rest = block.rpartition(b"\n")
                if line_feed:
                    yield np.frombuffer(held + whole + line_feed, np.uint8)
                    held = rest
                else:
                    held += rest
                    if len(held) > _BLOCK_BYTES:
                        raise ValidationError(path, f"cannot be read: a line has over {_BLOCK_BYTES:,} bytes.", REBUILD)
    except FileNotFoundError:
        raise ValidationError(path, "is missing.", REBUILD) from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValidationError(path, f"cannot be read: {error}.", REBUILD) from None
    if held:
        raise ValidationError(path, "cannot be read: its last line is cut off.", REBUILD)


def _numbers(text: npt.NDArray[np.uint8], is_packed: bool) -> list[Longs]:
    """The columns of `_lines` in a block of lines. Raises ValueError for a line without them."""
    ends = np.flatnonzero(text == ord("\n"))
    begins = np.append(0, ends[:-1] + 1)
    commas = np.flatnonzero(text == ord(","))
    first_commas = np.searchsorted(commas, begins)  # the first comma of each line
    n_commas = np.diff(np.append(first_commas, len(commas)))
    if (n_commas < _N_COMMAS).any() or (is_packed and (n_commas > _N_COMMAS).any()):
        raise ValueError("expected five columns; found others")
    columns = [
        _parsed(text, begins, commas[first_commas]),
        _parsed(text, commas[first_commas] + 1, commas[first_commas + 1]),
    ]
    if not is_packed:
        return [*columns, *[np.empty(0, np.int64)] * 2]
    return [
        *columns,
        _parsed(text, commas[first_commas + 1] + 1, commas[first_commas + 2]),
        _parsed(text, commas[first_commas + 3] + 1, ends),
    ]


def _parsed(text: npt.NDArray[np.uint8], begins: Longs, ends: Longs) -> Longs:
    """The decimal numbers between these places. Raises ValueError for what is none."""
    n_digits = ends - begins
    if ((n_digits < 1) | (n_digits > _DIGITS_MAX)).any():
        raise ValueError("expected a number of tokens; found none")
    numbers = np.zeros(len(begins), np.int64)
    for k in range(int(n_digits.max(initial=0))):
        with_digit = np.flatnonzero(n_digits > k)
        digits = text[begins[with_digit] + k].astype(np.int64) - ord("0")
        if ((digits < 0) | (digits > 9)).any():
            raise ValueError("expected a number of tokens; found none")
        numbers[with_digit] = numbers[with_digit] * 10 + digits
    return numbers
