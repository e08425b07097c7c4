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

from tokenmill_reader.regular_files import naming


@contextmanager
def new_arrow_file(path: Path, columns: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yields a function that adds a record batch to a new file."""
    with naming(path), path.open("xb") as file, pa.ipc.new_stream(file, columns) as writer:

        def write(batch: pa.RecordBatch) -> None:
            with naming(path):
                writer.write_batch(batch)

        yield write
