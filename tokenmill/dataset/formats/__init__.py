"""The file formats of a token dataset: a module for each, and the table of their names in `encode.formats`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa

from tokenmill.dataset.formats.parquet import write_tokens

Write = Callable[[Path, pa.Schema], AbstractContextManager[Callable[[pa.RecordBatch], None]]]
"""Opens a new file for rows of the schema; what the block gets adds a batch of rows. The same batches give the same bytes."""

FORMATS: Mapping[str, Write] = {"parquet": write_tokens}
"""How each format is written, by its name."""
