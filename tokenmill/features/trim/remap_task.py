"""remap, first half: a file of documents' tokens → the file of the new tokenizer, with its document index and token counts."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.console import Advance
from tokenmill.dataset.document_index import unit_of_index
from tokenmill.dataset.entries import OutputShard, TableFile
from tokenmill.dataset.index_rows import index_rows, with_column
from tokenmill.dataset.tables import UNIT_COUNTS_FILE, UNIT_INDEX_FILE
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.dataset.tokens_digest import TokensDigest
from tokenmill.dataset.unit_output import TOKENS_FILE
from tokenmill.errors import ValidationError
from tokenmill.formats.parquet import read_tokens, write_tokens
from tokenmill.formats.tokens import id_type, schema
from tokenmill.quantities import number_of
from tokenmill.rounds import Facts, Task
from tokenmill.tokenizer.remapping import Remapping
from tokenmill_reader.regular_files import sha256_file


class RemapFacts(Facts, frozen=True):
    """The facts of a file of documents. `n_again`: the old ids that were decoded and encoded again. `tokens_sha256`: the file's
    TokensDigest."""

    n_tokens: int
    n_again: int
    tokens_sha256: str

    def __str__(self) -> str:
        return number_of(self.n_tokens, "token")


class RemapTask(Task[RemapFacts], frozen=True, kw_only=True):
    """Remaps a file of documents, with its document index and token counts. `old`: the file. `entry`: its entry in the manifest.
    `index`: the document index of the dataset. `rows`: those of the file in it. `id_max`: the largest new id."""

    old: Path
    entry: OutputShard
    index: Path
    rows: range
    remapping: Remapping
    id_max: int

    @property
    def n_bytes(self) -> int:
        """The size of the file."""
        return self.entry.n_bytes

    def run(self, folder: Path, advance: Advance) -> RemapFacts:
        """Writes the files (see Task)."""
        check_file(self.old, self.entry)
        index = index_rows(self.index, self.rows)
        if set(index["file"].to_pylist()) - {self.entry.name}:
            raise ValidationError(
                self.index, f"expected the documents of {self.entry.name} in its rows from {self.rows.start:,} on."
            )
        shape = schema(id_type(self.id_max), pa.types.is_string(index.schema.field("id").type))
        counts, digest, lengths, n_again = TokenCounts(self.id_max), TokensDigest(), [np.empty(0, np.int64)], 0
        with write_tokens(folder / TOKENS_FILE, shape) as write:
            for batch in read_tokens(self.old):
                remapped = self.remapping(batch["input_ids"])
                counts.add(remapped.ids.values)
                columns = [batch["id"], remapped.ids.cast(shape.field("input_ids").type), batch["n_bytes"]]
                new_batch = pa.RecordBatch.from_arrays(columns, schema=shape)
                write(new_batch)
                digest.add(new_batch)
                lengths.append(pc.list_value_length(new_batch["input_ids"]).to_numpy().astype(np.int64))
                n_again += remapped.n_again
        counts.write(folder / UNIT_COUNTS_FILE)
        unit_of_index(
            with_column(index, "n_tokens", np.concatenate(lengths)), folder / UNIT_INDEX_FILE, self.entry.pieces
        )
        advance(self.entry.n_bytes, self.entry.n_tokens)
        return RemapFacts(int(counts.counts.sum()), n_again, digest.hex())


def check_file(path: Path, entry: OutputShard | TableFile) -> None:
    """Raises ValidationError for a file that is not the one of the manifest."""
    if not path.is_file():
        raise ValidationError(path, "missing; expected a file that the manifest names.", "Copy it there.")
    if (found := sha256_file(path)) != entry.sha256:
        raise ValidationError(path, f"expected the sha256 {entry.sha256}; found {found}.", "Copy the dataset again.")
