"""Saves the state of a long training to disk, so that a killed training can resume."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.storage.atomic import remove_tree, write_atomic, write_directory
from tokenmill_reader.regular_files import naming, read

if TYPE_CHECKING:
    import pyarrow as pa

_WORDS, _MERGES, _KEY = "words.arrow", "merges", "key"


@dataclass(frozen=True)
class Checkpoint:
    """The directory in which a training saves its state, and the number of merges between two saves."""

    directory: Path
    every: int

    def save(self, key: str, words: pa.Table, merges: bytes) -> None:
        """Replaces the saved state: pre-tokens as ids with their counts, and all merges so far, packed as the core gives them."""
        import pyarrow as pa

        with write_directory(self.directory) as directory:
            with write_atomic(directory / _WORDS) as path, pa.ipc.new_file(path, words.schema) as writer:
                writer.write_table(words)
            with write_atomic(directory / _MERGES) as path:
                path.write_bytes(merges)
            with write_atomic(directory / _KEY) as path:
                path.write_text(key, encoding="ascii")

    def load(self, key: str) -> tuple[pa.Table, bytes] | None:
        """The state that `save` wrote under this key; None if there is none, or if it belongs to another training."""
        path = self.directory / _KEY
        if not path.is_file() or read(path).decode("ascii") != key:
            return None
        import pyarrow as pa

        with naming(self.directory):
            return pa.ipc.open_file(self.directory / _WORDS).read_all(), read(self.directory / _MERGES)

    def remove(self) -> None:
        """Deletes the saved state."""
        remove_tree(self.directory)


def key_of(counts: pa.Table, *settings: object) -> str:
    """The sha256, in hex, of the counts' rows (chunking does not matter) and of all other settings that decide the merges."""
    import pyarrow as pa
    import pyarrow.compute as pc

    digest = hashlib.sha256(repr(settings).encode())
    for chunk in counts["pretoken"].chunks:
        lengths = pc.binary_length(chunk).cast(pa.uint32())
        digest.update(lengths.to_numpy(zero_copy_only=False).tobytes())
    for chunk in counts["pretoken"].cast(pa.large_binary()).chunks:
        offsets = chunk.buffers()[1]
        start, end = (
            int.from_bytes(offsets[8 * i : 8 * i + 8], "little") for i in (chunk.offset, chunk.offset + len(chunk))
        )
        digest.update(chunk.buffers()[2][start:end] if end > start else b"")
    for chunk in counts["count"].chunks:
        digest.update(chunk.to_numpy(zero_copy_only=False).tobytes())
    return digest.hexdigest()
