"""The interface of a file format of a token dataset: how items are written and read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.formats.tokens import list_of

Ids = npt.NDArray[np.uint16] | npt.NDArray[np.int32] | npt.NDArray[np.uint32]
STARTS_SUFFIX = ".starts.arrow"
"""Suffix of the file beside a part for what its format cannot hold: an Arrow IPC file with a row for each item. Columns: `starts`
for sequences, and `n_tokens` if the format does not say where an item ends."""


@dataclass(frozen=True)
class Shape:
    """What the items of a file set look like: documents, or sequences that were packed from documents.

    `ids`: the type of the token ids, uint16 or uint32. `id_max`: the tokenizer's largest id. `begin_id`, `end_id`: the ids that
    begin and end every document, or None. `has_names`: documents have string ids; otherwise a document's id is its row. `length`:
    the largest number of tokens of a sequence; None: the items are documents. `has_labels`: sequences have labels. `has_mask`: the
    documents are conversations, whose tokens have a loss mask.
    """

    ids: pa.DataType
    id_max: int
    tokenizer_digest: str
    begin_id: int | None
    end_id: int | None
    has_names: bool
    length: int | None = None
    has_labels: bool = False
    has_mask: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of the items.

        Documents: `id` string, or int64 for the row; `input_ids` list of ids; `n_bytes` int64, of the text in UTF-8; `shard`
        string, the input file; `row` int64, the position in that file from 0. Sequences: `input_ids`; `starts` list of int32,
        the position in the sequence of the first token of each document or part of one, from 0; and with labels, what trainers
        read beside the ids: `labels` list of int32, the ids, with -100 where nothing is to be learned; `position_ids` list of
        int32, the position of each token behind the last start; `seq_lengths` list of int32, the tokens from each start to the
        next one or to the end. Of conversations, documents and sequences also have `loss_mask` list of int8: 1 where the token is
        to be learned, else 0. In sequences it is 0 at each start, since what comes before a token there is not its own.
        """
        ids, mask = list_of("input_ids", self.ids), [list_of("loss_mask", pa.int8())] * self.has_mask
        if self.length is None:
            return pa.schema(
                [
                    pa.field("id", pa.string() if self.has_names else pa.int64(), nullable=False),
                    ids,
                    pa.field("n_bytes", pa.int64(), nullable=False),
                    pa.field("shard", pa.string(), nullable=False),
                    pa.field("row", pa.int64(), nullable=False),
                    *mask,
                ]
            )
        labels = [list_of(name, pa.int32()) for name in ("labels", "position_ids", "seq_lengths") if self.has_labels]
        return pa.schema([ids, list_of("starts", pa.int32()), *mask, *labels])


class Flat(NamedTuple):
    """Items whose ids lie one after another in a memory-mapped array: all items of a part, or a record batch of them.

    `offsets`: int64, where each item begins in `ids`, then the end of the last one. `starts`: a ListArray of int32 with a list for
    each sequence, as in the schema; None for documents. `labels` int32, `loss_mask` int8: a value for each id; None if the items
    have none.
    """

    ids: Ids
    offsets: npt.NDArray[np.int64]
    starts: pa.ListArray | None = None
    labels: npt.NDArray[np.int32] | None = None
    loss_mask: npt.NDArray[np.int8] | None = None


Write = Callable[[Path, str, Shape], AbstractContextManager[Callable[[pa.RecordBatch], None]]]
Read = Callable[[Path, str, Shape], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Format:
    """A file format.

    `suffixes`: those of a part's files, which share a stem. `packed_suffixes`: those of the further files of a part of packed
    sequences. `write(folder, stem, shape)` opens the files of a new part, and yields a function that adds a batch of items. Equal
    items give equal bytes in any batches. Raises ValidationError for an item that the format cannot hold. `read(folder, stem,
    shape)` gives the items, with those columns of the shape that the format holds (always `input_ids`, and `starts` of sequences).
    Raises ValidationError for malformed or inconsistent files. `flat(folder, stem, shape)` gives the ids in order without a copy,
    in one or more arrays; None if the format has no such arrays. Raises ValidationError as `read` does. `refusal(shape,
    file_bytes)` says why the format cannot hold such items in files of that many bytes, or gives None. `finish(folder, stems,
    shape)` writes the files `shared` by all parts of a set; None if there are none. `one_file`: a set is one part, named after its
    split, without a folder of its own. `has_places`: its files name the shard and row of each document. `keeps_ends`: trainers read
    each packed sequence as it was written; otherwise they read windows of one length, wherever sequences end. `needs_end`: trainers
    find documents by the id that ends them.
    """

    name: str
    suffixes: Sequence[str]
    write: Write
    read: Read
    flat: Callable[[Path, str, Shape], list[Flat]] | None
    refusal: Callable[[Shape, int], str | None]
    finish: Callable[[Path, Sequence[str], Shape], None] | None = None
    shared: Sequence[str] = ()
    one_file: bool = False
    packed_suffixes: Sequence[str] = ()
    has_places: bool = False
    keeps_ends: bool = True
    needs_end: bool = False

    def files(self, stem: str, shape: Shape) -> list[str]:
        """The names of the files of a part with items of this shape."""
        packed = [] if shape.length is None else self.packed_suffixes
        return [f"{stem}{suffix}" for suffix in (*self.suffixes, *packed)]
