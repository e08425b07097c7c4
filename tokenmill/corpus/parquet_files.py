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
from tokenmill.errors import EncryptedError
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.thrift import read_struct

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_TAIL_BYTES = 8  # the length of the footer, and PAR1 or PARE
_N_COLUMNS_SHOWN = 5


@contextmanager
def open_parquet(shard: Shard, **options: Any) -> Iterator["pq.ParquetFile"]:
    """The shard for reading. Raises EncryptedError, and what pyarrow raises for a damaged file."""
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
    return opened


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
