"""Opens .parquet files of documents, with page checksums verified, and refuses encrypted files.

pyarrow ends the process when it is asked for an encrypted column without a key (apache/arrow#51361), so encryption is found out
first. The four last bytes of an encrypted footer are PARE. A plain footer is signed if columns are encrypted, which makes it 28
bytes longer than its metadata (github.com/apache/parquet-format, Encryption.md). Only such a footer is read here.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from tokenmill.corpus.shard_files import open_arrow
from tokenmill.corpus.shards import Shard
from tokenmill.errors import DamagedError, EncryptedError
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.thrift import read_struct

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_TAIL_BYTES = 8  # the length of the footer, and PAR1 or PARE
_INDEX_BYTES_MAX = 1 << 20
_N_COLUMNS_SHOWN = 5


@contextmanager
def open_parquet(shard: Shard, **options: Any) -> Iterator["pq.ParquetFile"]:
    """The shard for reading. Raises EncryptedError, DamagedError, and what pyarrow raises for a damaged file."""
    with open_arrow(shard) as file:
        yield checked(file, shard.name, pre_buffer=False, **options)


def read_metadata(shard: Shard) -> "pq.FileMetaData":
    """The metadata of the shard. Raises what `open_parquet` raises."""
    with open_parquet(shard) as file:
        return file.metadata


def checked(file: IO[bytes], name: str, **options: Any) -> "pq.ParquetFile":
    """An open file as a pyarrow.parquet.ParquetFile. `name`: its name in an error message. Raises what `open_parquet` raises."""
    n_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(n_bytes - _TAIL_BYTES, 0))
    tail = file.read(_TAIL_BYTES)
    if tail[4:] == b"PARE":
        raise EncryptedError(name, "the file")
    opened = parquet_file(file, **options)
    n_footer = int.from_bytes(tail[:4], "little")
    if n_footer != opened.metadata.serialized_size:
        file.seek(n_bytes - _TAIL_BYTES - n_footer)
        if names := _encrypted_columns(file.read(n_footer)):
            more = f" and {len(names) - _N_COLUMNS_SHOWN} more" if len(names) > _N_COLUMNS_SHOWN else ""
            word = "the columns" if len(names) > 1 else "the column"
            raise EncryptedError(name, f"{word} {', '.join(names[:_N_COLUMNS_SHOWN])}{more}")
    if n_before := _bytes_before(file, opened.metadata, n_bytes - _TAIL_BYTES - n_footer):
        what = f"is two .parquet files, one behind another: the second begins behind {n_before:,} bytes."
        raise DamagedError(name, what, "Copy both again, each to a file of its own.")
    return opened


def _bytes_before(file: IO[bytes], metadata: "pq.FileMetaData", footer: int) -> int:
    """The bytes of another file that lies in front of the one whose footer is read, at this byte; 0 if there is none.

    That one ends with the length of its footer and PAR1, and this one begins with PAR1. pyarrow would take pages of the first file,
    because a footer has their distances from the first byte."""
    end = 4
    if metadata.num_row_groups:
        group = metadata.row_group(metadata.num_row_groups - 1)
        chunks = [group.column(i) for i in range(group.num_columns)]
        ends = [
            (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size for chunk in chunks
        ]
        end = max([end, *ends])
    last = footer - end  # where this file begins, if nothing such as an index is between its pages and its footer
    first = max(last - _INDEX_BYTES_MAX, 0)
    file.seek(first)
    content = file.read(max(last + 4 - first, 0))
    position = len(content)
    while (position := content.rfind(b"PAR1PAR1", 4, position)) > 0:
        n_footer = int.from_bytes(content[position - 4 : position], "little")
        file.seek(max(first + position - 4 - n_footer, 0))
        if n_footer < first + position and _is_footer(file.read(n_footer)):  # a text may have PAR1PAR1, too
            return first + position + 4
    return 0


def _is_footer(data: bytes) -> bool:
    try:
        found = read_struct(io.BytesIO(data))
        return isinstance(found.get(2), list) and isinstance(found.get(4), list)  # the schema, and the row groups
    except (EOFError, ValueError, KeyError, TypeError):
        return False


def _encrypted_columns(footer: bytes) -> list[str]:
    """The paths of the encrypted columns of a plain footer."""
    try:
        groups = read_struct(io.BytesIO(footer))[4]
        chunks = [chunk for group in groups for chunk in group[1]]
        return list(dict.fromkeys(_path(chunk) for chunk in chunks if 8 in chunk))
    except (EOFError, ValueError, KeyError, TypeError):
        return []  # pyarrow has read this footer; what it cannot read, it reports


def _path(chunk: dict[int, Any]) -> str:
    """The path of an encrypted column chunk: that of its key, or else of its own metadata, which is plain then."""
    has_own_key = isinstance(chunk[8].get(2), dict)
    return ".".join(part.decode(errors="replace") for part in (chunk[8][2][1] if has_own_key else chunk[3][3]))
