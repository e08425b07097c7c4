"""The state of a long training on disk, to go on from after the process was killed."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tokenmill.files import naming, read, remove_tree, write_atomic, write_directory

_KEY = "key"


@dataclass(frozen=True)
class Checkpoint:
    """Where a training keeps its state, in a directory of its own, and after how many merges it does so again."""

    directory: Path
    every: int

    def save(self, key: str, words: pa.Table, merges: pa.Table) -> None:
        """Replaces what was kept: the pre-tokens as ids with their counts, and all merges so far."""
        with write_directory(self.directory) as directory:
            for name, table in (("words", words), ("merges", merges)):
                with write_atomic(directory / f"{name}.arrow") as path, pa.ipc.new_file(path, table.schema) as writer:
                    writer.write_table(table)
            with write_atomic(directory / _KEY) as path:
                path.write_text(key, encoding="ascii")

    def load(self, key: str) -> tuple[pa.Table, pa.Table] | None:
        """What `save` kept under this key; None when there is nothing, or something of another training."""
        path = self.directory / _KEY
        if not path.is_file() or read(path).decode("ascii") != key:
            return None
        with naming(self.directory):
            words, merges = (
                pa.ipc.open_file(self.directory / f"{name}.arrow").read_all() for name in ("words", "merges")
            )
        return words, merges

    def remove(self) -> None:
        """Forgets what was kept."""
        remove_tree(self.directory)


def key_of(counts: pa.Table, *settings: object) -> str:
    """The sha256, in hex, of counts (their rows, however chunked) and of what else decides the merges."""
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
