"""What a reader may take in at once, and a file that is not read beyond that."""

import io
import os
from dataclasses import dataclass
from typing import Any

from tokenmill.corpus.shards import Shard
from tokenmill.errors import CorpusError
from tokenmill.storage.atomic import open_regular

BATCH_BYTES = 4 << 20  # of text that is worked on at a time; row groups of the dataset follow from it


@dataclass(frozen=True)
class Limits:
    """`document_bytes_max`: of a document, or a line of a .jsonl file; `block_bytes_max`: of a page of a .parquet file, and of a
    record batch of an .arrow file. None: any."""

    document_bytes_max: int | None
    block_bytes_max: int | None

    def check_document(self, n_bytes: int, where: str) -> None:
        """Raises CorpusError for a document of so many bytes, or a part of one, that is too long."""
        if self.document_bytes_max is not None and n_bytes > self.document_bytes_max:
            raise CorpusError(
                f"{where}: the document is longer than {self.document_bytes_max:,} bytes, the most that run.memory_mb_max leaves "
                "to a worker for one. Raise run.memory_mb_max, lower run.workers, or cut the document.",
                code="TM206",
            )

    def check_block(self, n_bytes: int, where: str, remedy: str) -> None:
        """The same for what a format makes read at once."""
        if self.block_bytes_max is not None and n_bytes > self.block_bytes_max:
            raise CorpusError(
                f"{where} has {n_bytes:,} bytes, which can only be read at once; run.memory_mb_max leaves {self.block_bytes_max:,} "
                f"bytes to a worker for that. Raise run.memory_mb_max, lower run.workers, or {remedy}.",
                code="TM206",
            )


UNBOUNDED = Limits(None, None)


class BoundedFile(io.BufferedReader):
    """An .arrow file: what pyarrow asks for is counted up to the next `begin_batch`, and refused before it is read when it is too
    much. Leaving a `with` block then raises CorpusError instead of pyarrow's error.

    pyarrow itself says how long a record batch is only once it has read it, and reads it at once.
    """

    def __init__(self, shard: Shard, limits: Limits) -> None:
        super().__init__(io.FileIO(shard.path, opener=open_regular))
        self._name, self._limits = shard.name, limits
        self._n_bytes = os.fstat(self.fileno()).st_size
        self._n_batches = self._n_held = 0
        self._refusal: CorpusError | None = None

    def begin_batch(self) -> None:
        """What was read up to now is no longer held."""
        self._n_batches, self._n_held = self._n_batches + 1, 0

    def read(self, n_bytes: int | None = -1, /) -> bytes:
        left = max(self._n_bytes - self.tell(), 0)
        n_bytes = left if n_bytes is None or n_bytes < 0 else min(n_bytes, left)  # a damaged file asks for any number
        self._n_held += n_bytes
        try:
            where = f"{self._name}: record batch {self._n_batches} (or a dictionary in front of it)"
            self._limits.check_block(self._n_held, where, "write the file in smaller record batches")
        except CorpusError as error:
            self._refusal = error
            raise
        return super().read(n_bytes)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._refusal is not None:
            raise self._refusal from None
