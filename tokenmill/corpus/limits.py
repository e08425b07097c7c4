"""Limits on the memory of a reader, and a file object that refuses larger reads."""

import io
import os
from dataclasses import dataclass
from typing import Any

from tokenmill.corpus.shard_files import open_raw
from tokenmill.corpus.shards import Shard
from tokenmill.errors import CorpusError
from tokenmill.process_memory import give_memory_back, resident_bytes

HELD_OF_A_BLOCK = 3  # a block is held compressed, decompressed, and as an array
BATCH_BYTES = 4 << 20  # text per batch; the dataset's row groups depend on it
VALUE_BYTES_MAX = 1 << 16
"""The largest text beside a document's own: an id, a group, a value that the document index keeps."""
SMALLER_BATCHES = "write the file in smaller record batches"


@dataclass(frozen=True)
class Limits:
    """`document_bytes_max`: for a document, or a line of a .jsonl file, or a record of a .csv file. `block_bytes_max`: for a page
    of a .parquet file, or a record batch of an .arrow file. `batch_bytes`: the most text of a batch of several documents.
    `held_bytes_max`: for the bad documents of a unit, which are held to its end. `process_bytes_max`: for the whole
    process. None: no limit."""

    document_bytes_max: int | None
    block_bytes_max: int | None
    batch_bytes: int = BATCH_BYTES
    held_bytes_max: int | None = None
    process_bytes_max: int | None = None

    @property
    def window_bytes_max(self) -> int | None:
        """For the window of a decompressor, which is held once and not, like a block, HELD_OF_A_BLOCK times."""
        return None if self.block_bytes_max is None else self.block_bytes_max * HELD_OF_A_BLOCK

    @property
    def rendering_bytes_max(self) -> int | None:
        """For what a chat template makes of a conversation, which may be longer than its JSON."""
        return None if self.document_bytes_max is None else 2 * self.document_bytes_max

    @property
    def renderer_bytes_max(self) -> int | None:
        """For the memory of a process that renders conversations. It takes 90 MB without one, and 20 bytes for each byte of a
        rendering in ASCII, up to 80 where a character is outside the Basic Multilingual Plane."""
        return None if self.rendering_bytes_max is None else 120_000_000 + 40 * self.rendering_bytes_max

    def check_document(self, n_bytes: int, where: str) -> None:
        """Raises CorpusError if a document, or a part of one, with this many bytes is too long."""
        if self.document_bytes_max is not None and n_bytes > self.document_bytes_max:
            raise CorpusError(
                where,
                f"the document is longer than {self.document_bytes_max:,} bytes, the most that run.memory_mb_max "
                "leaves to a worker for one.",
                "Raise run.memory_mb_max, lower run.workers, or cut the document.",
                code="TM206",
            )

    @property
    def encoding_bytes_max(self) -> int | None:
        """For the memory of a library that encodes a document: half of a worker's share, while `held_bytes_max` is an eighth."""
        return None if self.held_bytes_max is None else 4 * self.held_bytes_max

    def check_held(self, n_bytes: int, where: str) -> None:
        """Raises CorpusError if the documents that a unit left out take this many bytes, which is too much."""
        if self.held_bytes_max is not None and n_bytes > self.held_bytes_max:
            raise CorpusError(
                where,
                f"the documents that were left out up to here take more than {self.held_bytes_max:,} bytes, the most "
                "that run.memory_mb_max leaves to a worker for those of a unit.",
                "Correct the documents, lower source.unit_bytes_max or run.workers, or raise run.memory_mb_max.",
                code="TM206",
            )

    def check_process(self, where: str) -> None:
        """Raises CorpusError if this process has become too large, after it has given back what it does not use."""
        if self.process_bytes_max is None or resident_bytes() <= self.process_bytes_max:
            return
        give_memory_back()
        if (n_bytes := resident_bytes()) > self.process_bytes_max:
            raise CorpusError(
                where,
                f"the build takes {n_bytes / 1e6:,.0f} MB here; run.memory_mb_max leaves {self.process_bytes_max / 1e6:,.0f} "
                "MB to this process.",
                "Look for values in these documents that are far longer than usual, raise run.memory_mb_max, or lower "
                "run.workers.",
                code="TM206",
            )

    def check_block(self, n_bytes: int, where: str, remedy: str, n_blocks: int = 1) -> None:
        """Raises CorpusError if a block, which the format forces a reader to load at once, is too large. `n_blocks`: how many there
        is room for."""
        n_bytes_max = None if self.block_bytes_max is None else self.block_bytes_max * n_blocks
        if n_bytes_max is not None and n_bytes > n_bytes_max:
            raise CorpusError(
                "",
                f"{where} has {n_bytes:,} bytes and has to be loaded whole; run.memory_mb_max leaves {n_bytes_max:,} "
                "bytes to a worker for that.",
                f"Raise run.memory_mb_max, lower run.workers, or {remedy}.",
                code="TM206",
            )


UNBOUNDED = Limits(None, None)


class BoundedFile(io.BufferedReader):
    """An .arrow file that refuses to load too large a record batch. It counts the bytes that pyarrow requests after each
    `begin_batch`. If they are too many, leaving the `with` block raises CorpusError instead of pyarrow's error.

    pyarrow reads a record batch at once, and tells its length only afterwards.
    """

    def __init__(self, shard: Shard, limits: Limits) -> None:
        super().__init__(open_raw(shard))
        self.shard_name: str = shard.name
        self._limits = limits
        self.n_bytes: int = self.seek(0, os.SEEK_END)
        self.seek(0)
        self._n_batches = self._n_held = 0
        self._refusal: CorpusError | None = None

    def begin_batch(self) -> None:
        """Resets the count: the bytes read so far are no longer held."""
        self._n_batches, self._n_held = self._n_batches + 1, 0

    def peek_at(self, start: int, n_bytes: int) -> bytes:
        """Some bytes, fewer at the end of the file, which are not counted. Raises ValueError for a negative number, and CorpusError
        for more than a block."""
        if start < 0 or n_bytes < 0:
            raise ValueError(f"{n_bytes:,} bytes from byte {start:,} on")
        self._limits.check_block(n_bytes, f"{self.shard_name}: the metadata at byte {start:,}", SMALLER_BATCHES)
        position = self.tell()
        self.seek(start)
        found = super().read(n_bytes)
        self.seek(position)
        return found

    def read(self, n_bytes: int | None = -1, /) -> bytes:
        left = max(self.n_bytes - self.tell(), 0)
        n_bytes = left if n_bytes is None or n_bytes < 0 else min(n_bytes, left)  # a damaged file requests any number
        self._n_held += n_bytes
        try:
            where = f"{self.shard_name}: record batch {self._n_batches} (or a dictionary in front of it)"
            self._limits.check_block(self._n_held, where, SMALLER_BATCHES)
        except CorpusError as error:
            self._refusal = error
            raise
        return super().read(n_bytes)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._refusal is not None:
            raise self._refusal from None
