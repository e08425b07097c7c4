"""Arrow record batches in a file: the streaming form of Arrow IPC, uncompressed, which can be mapped into memory.

The streaming form, not the file form with a footer: `datasets.Dataset.from_file` maps only the streaming form (tried with
datasets 5.2; of the file form it says "Expected to read 1330795073 metadata bytes"), its `load_dataset("arrow")` reads both, and
`pyarrow.ipc.open_stream(pyarrow.memory_map(path))` gives the batches without a copy as well. What the footer would add is the
place of each batch; to find them here takes a header a batch, a few dozen in a file.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.formats.files import map_file
from tokenmill.formats.item_checks import REBUILD, named
from tokenmill.storage.atomic import naming

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # the marker at the end of a stream; without it a cut at a batch's end is not seen


@contextmanager
def new_arrow_file(path: Path, columns: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yields a function that adds a record batch to a new file."""
    with naming(path), path.open("xb") as file, pa.ipc.new_stream(file, columns) as writer:

        def write(batch: pa.RecordBatch) -> None:
            with naming(path):
                writer.write_batch(batch)

        yield write


def read_arrow_file(path: Path, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The record batches of a file, mapped into memory. Raises ValidationError if it is not such a file, or has other columns."""
    found = map_file(path)
    if found[-len(_END) :].tobytes() != _END:
        raise ValidationError(path, "it is cut off, or no stream of Arrow.", REBUILD)
    try:
        source = pa.BufferReader(pa.py_buffer(found))
        with pa.ipc.open_stream(source) as reader:
            if not reader.schema.equals(columns):
                raise ValidationError(
                    path, f"expected the columns {named(columns)}; found {named(reader.schema)}.", REBUILD
                )
            for batch in reader:
                batch.validate(full=True)
                if any(column.null_count for column in batch.columns):
                    raise ValidationError(path, "expected no nulls; found some.", REBUILD)
                yield batch
            if source.tell() != found.size:
                raise ValidationError(path, f"expected {source.tell():,} bytes; found {found.size:,}.", REBUILD)
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a name in it is not UTF-8
        raise ValidationError(path, f"cannot be read: {error}.", REBUILD) from None
