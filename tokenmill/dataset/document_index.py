"""The document index of a token dataset: where the tokens of each document are, and the digest of its text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.corpus.dropped import Starts
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.text_digests import text_digests, text_keys
from tokenmill.dataset.group_keys import Groups
from tokenmill.dataset.kept_columns import KEPT, KeptAgain, KeptColumns, kept_values, names_of, write_kinds
from tokenmill.dataset.splits import split_of
from tokenmill.errors import ValidationError
from tokenmill.formats.batches import even_batches
from tokenmill_reader.checked_parquet import read_table
from tokenmill_reader.regular_files import naming

_BATCH_ROWS = 1 << 13  # of the index of a unit
_GROUP_ROWS = 1 << 16  # of the index: `locate` reads one row group for a token
_GROUP_BYTES = 1 << 24  # of a row group of the index before compression, beside which ids and kept values may be long
_OF_A_UNIT = [
    pa.field("piece", pa.int32(), nullable=False),
    pa.field("row", pa.int64(), nullable=False),
    pa.field("n_tokens", pa.int64(), nullable=False),
    pa.field("n_bytes", pa.int64(), nullable=False),
    pa.field("sha256", pa.binary(32), nullable=False),
]
_OF_CONVERSATIONS = [
    pa.field("n_trained", pa.int64(), nullable=False),
    pa.field("trained_end", pa.int64(), nullable=False),
    pa.field("n_messages", pa.int32(), nullable=False),
]

_GROUP = pa.field("group", pa.uint64(), nullable=False)

ReadIndex = Callable[[Sequence[str] | None], pa.Table]
"""Reads the document index of a unit from elsewhere than a file of its own, as read_unit_index does."""


def index_schema(
    has_names: bool,
    has_group: bool = False,
    has_split: bool = False,
    has_mask: bool = False,
    kept: Mapping[str, pa.DataType] = MappingProxyType({}),
) -> pa.Schema:
    """The columns of documents.parquet, which has a row for each document in the order of the dataset.

    `id`: as in the dataset's files: a string, or the row if documents have no names. `shard`: the input file. `row`: the position
    in the shard, from 0. `file`: the file of the dataset. `first_token`: the position of its first token in the whole dataset, from
    0. `n_tokens`: its tokens, with those that begin and end it. `n_bytes`, `sha256`: those of its text in UTF-8; of a conversation,
    `n_bytes` is of the text that the template made of it, and `sha256` of its messages. Only of conversations: `n_trained`, the
    tokens that are to be learned; `trained_end`, the position behind the last of them, 0 without one; and `n_messages`. With
    `turns: each`, a row is a sample: the first `n_messages` of the conversation with this place and `sha256`. `group`:
    only with `encode.split_group`, a hash of the document's group. `split`: only with `encode.splits`, its split. `kept`: the
    columns of `source.keep_columns`, which may have nulls.
    """
    return pa.schema(
        [
            _id(has_names),
            pa.field("shard", pa.string(), nullable=False),
            _OF_A_UNIT[1],
            pa.field("file", pa.string(), nullable=False),
            pa.field("first_token", pa.int64(), nullable=False),
            *_OF_A_UNIT[2:],
            *_OF_CONVERSATIONS * has_mask,
            *[_GROUP] * has_group,
            *[pa.field("split", pa.string(), nullable=False)] * has_split,
            *(pa.field(name, type) for name, type in kept.items()),
        ]
    )


@contextmanager
def unit_index(
    path: Path,
    first_rows: Sequence[int],
    has_names: bool,
    group_keys: Groups | None = None,
    has_mask: bool = False,
    kept: KeptColumns | None = None,
) -> Iterator[Any]:
    """Yields a function that adds a batch of documents, and the rows made of it, to the index of one unit.

    Rows in it count from 0 in each piece, so that the index stays the same when lines before a piece come or go. `first_rows`: each
    piece's first row in its shard. `group_keys`: gives the groups of documents, for which the index then has a column. `has_mask`:
    the documents are conversations; where a batch has no messages, their number is 0. `kept`: gives the values of `keep_columns`,
    for which the index then has one column, and beside it is a file with their kinds."""
    of_documents = [*[_GROUP] * (group_keys is not None), *[KEPT] * (kept is not None)]
    shape = pa.schema([_id(has_names), *_OF_A_UNIT, *_OF_CONVERSATIONS * has_mask, *of_documents])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        naming(path),
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, shape, options=options) as writer,
        even_batches(writer.write_batch, None, _BATCH_ROWS, 0) as write,  # compressing small batches takes longer
    ):
        starts = pa.array(first_rows, pa.int64())

        def add(batch: Batch, rows: pa.RecordBatch) -> None:
            pieces = batch.pieces
            if pieces is None:
                pieces = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
            columns = [
                rows["id"],
                pieces,
                pc.subtract(batch.rows(), starts.take(pieces)),
                pc.list_value_length(rows["input_ids"]).cast(pa.int64()),
                rows["n_bytes"],
                *([rows["sha256"], *_of_conversations(batch, rows)] if has_mask else [text_digests(batch.texts)]),
                *([] if group_keys is None else [group_keys(batch)]),
                *([] if kept is None else [kept.of(batch)]),
            ]
            write(pa.RecordBatch.from_arrays(columns, schema=shape))

        yield add
    if kept is not None:
        write_kinds(kept.kinds, path.parent)


class _Messages(msgspec.Struct):
    """The field of a conversation's canonical JSON that is read here."""

    messages: list[msgspec.Raw]


_CONVERSATION = msgspec.json.Decoder(_Messages)


def _of_conversations(batch: Batch, rows: pa.RecordBatch) -> list[pa.Array]:
    """The columns that the index has only for conversations."""
    n_messages = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    if batch.messages is not None:
        found = [len(_CONVERSATION.decode(message).messages) for message in batch.messages.to_pylist()]
        n_messages = pa.array(found, pa.int32())
    return [*trained(rows["loss_mask"]), n_messages]


def trained(loss_mask: pa.ListArray) -> tuple[pa.Int64Array, pa.Int64Array]:
    """For each list of a mask, the number of trained tokens, and the position after the last of them (0 without one).

    >>> [one.to_pylist() for one in trained(pa.array([[0, 1, 0, 1, 0], [], [0]], pa.list_(pa.int8())))]
    [[2, 0, 0], [4, 0, 0]]
    """
    offsets = loss_mask.offsets.to_numpy().astype(np.int64) - loss_mask.offsets[0].as_py()
    places = np.flatnonzero(loss_mask.flatten().to_numpy())
    before = np.searchsorted(places, offsets)  # the trained tokens before each list, and before the end
    n_trained = np.diff(before)
    ends = places[before[1:] - 1] + 1 - offsets[:-1] if len(places) else offsets[:-1]
    return pa.array(n_trained), pa.array(np.where(n_trained, ends, 0))


def unit_columns(path: Path) -> list[str]:
    """The columns that the document index of a unit has."""
    with naming(path), pa.memory_map(str(path)) as file:
        names: list[str] = pa.ipc.open_stream(file).schema.names
    return names


def read_unit_index(path: Path | ReadIndex, columns: Sequence[str] | None = None) -> pa.Table:
    """Reads the document index of a unit. `columns` that it lacks are left out; it has one of them."""
    if not isinstance(path, Path):
        return path(columns)
    names = unit_columns(path)
    fields = None if columns is None else [i for i, name in enumerate(names) if name in columns]
    with naming(path), pa.memory_map(str(path)) as file:
        return pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(included_fields=fields)).read_all()


def n_repeated_tokens(path: Path) -> int:
    """The number of tokens in rows of a unit's index that another row of the same conversation follows: with `turns: each`, in all
    samples of it but the last, whose messages the last one has, too."""
    index = read_unit_index(path, ["piece", "row", "n_tokens"])
    piece, row, n_tokens = (index[name].to_numpy() for name in ("piece", "row", "n_tokens"))
    is_followed = (piece[:-1] == piece[1:]) & (row[:-1] == row[1:])
    return int(n_tokens[:-1][is_followed].sum())


def split_keys(index: pa.RecordBatch | pa.Table) -> npt.NDArray[np.uint64]:
    """The hashes that decide the splits of documents: the groups' if the index has them, else the texts'."""
    if "group" in index.schema.names:
        found: npt.NDArray[np.uint64] = index["group"].to_numpy()
        return found
    sha256 = index["sha256"]
    keys: npt.NDArray[np.uint64] = text_keys(sha256.combine_chunks() if isinstance(sha256, pa.ChunkedArray) else sha256)
    return keys


@contextmanager
def write_index(
    path: Path,
    has_names: bool,
    has_group: bool,
    splits: Mapping[str, float],
    has_mask: bool = False,
    kept: Mapping[str, pa.DataType] = MappingProxyType({}),
) -> Iterator[Any]:
    """Yields a function that adds the index of a unit, given the shard and first row of each of its pieces, and the name of its
    file in the dataset. `kept`: see kept_types."""
    shape = index_schema(has_names, has_group, bool(splits), has_mask, kept)
    held: list[pa.Table] = []
    first_token = n_held = n_bytes = 0
    with naming(path), index_writer(path, shape) as writer:

        def add(unit: Path, pieces: Starts, file: str) -> None:
            nonlocal first_token, n_held, n_bytes
            names = names_of(unit.parent) if kept else []
            with naming(unit), pa.ipc.open_stream(pa.memory_map(str(unit))) as batches:
                for batch in batches:
                    values = batch[KEPT.name] if KEPT.name in batch.schema.names else None
                    more = kept_values(values, names, kept, batch.num_rows)
                    table = _in_dataset(batch, pieces, file, first_token, splits, more, shape)
                    first_token += pc.sum(batch["n_tokens"]).as_py() or 0
                    held.append(table)
                    n_held, n_bytes = n_held + len(table), n_bytes + table.nbytes
                    if n_held >= _GROUP_ROWS or n_bytes >= _GROUP_BYTES:
                        with naming(path):
                            writer.write_table(pa.concat_tables(held))
                        held.clear()
                        n_held = n_bytes = 0

        yield add
        if held:
            writer.write_table(pa.concat_tables(held))


def index_writer(path: Path, shape: pa.Schema) -> Any:
    """The writer of a dataset's index with these columns."""
    return pq.ParquetWriter(
        path,
        shape,
        compression="zstd",
        use_dictionary=["shard", "file", "split"],
        write_statistics=["file", "first_token"],
    )


def _in_dataset(
    batch: pa.RecordBatch,
    pieces: Starts,
    file: str,
    first_token: int,
    splits: Mapping[str, float],
    further_columns: Mapping[str, pa.Array],
    shape: pa.Schema,
) -> pa.Table:
    """Turns the rows of a unit's index into rows of the dataset's index. `first_token`: the unit's first position in the
    dataset. `further_columns`: those that source.keep_columns adds."""
    ends = pc.add(pc.cumulative_sum(batch["n_tokens"]), first_token)
    columns = {
        "id": batch["id"],
        **places_of(batch["piece"], batch["row"], pieces),
        "file": pa.repeat(file, batch.num_rows),
        "first_token": pc.subtract(ends, batch["n_tokens"]),
        **{name: batch[name] for name in batch.schema.names if name in shape.names and name not in ("id", "row")},
        **further_columns,
    }
    if splits:
        columns["split"] = pa.array(list(splits), pa.string()).take(pa.array(split_of(split_keys(batch), splits)))
    return pa.Table.from_arrays([columns[name] for name in shape.names], schema=shape)


def places_of(piece: pa.Array, row: pa.Array, pieces: Starts) -> dict[str, pa.Array]:
    """The columns `shard` and `row` of documents, from the columns `piece` and `row` of the index of their unit."""
    shards = pa.array([shard for shard, _ in pieces], pa.string())
    return {"shard": shards.take(piece), "row": pc.add(row, _first_rows(pieces).take(piece))}


def unit_of_index(rows: pa.Table, path: Path, pieces: Starts, kept: KeptAgain | None = None) -> None:
    """Restores the index of a unit from its rows in the dataset's index. `pieces`: the shard and first row of each of its
    pieces. `kept`: the values of `keep_columns`, and their kinds; None if the index has none."""
    names = rows.schema.names
    more = [*_OF_CONVERSATIONS * ("n_trained" in names), *[_GROUP] * ("group" in names), *[KEPT] * (kept is not None)]
    shape = pa.schema([rows.schema.field("id"), *_OF_A_UNIT, *more])
    piece = pc.index_in(rows["shard"], pa.array([shard for shard, _ in pieces])).cast(pa.int32())
    row = pc.subtract(rows["row"], _first_rows(pieces).take(piece))
    rows = rows.set_column(rows.schema.get_field_index("row"), "row", row)
    rows = rows.append_column("piece", piece)
    if kept is not None:
        rows = rows.append_column(KEPT, kept.values)
        write_kinds(kept.kinds, path.parent)
    table = rows.select(shape.names).cast(shape)
    with naming(path), pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, shape) as writer:
        writer.write_table(table)


def _first_rows(pieces: Starts) -> pa.Int64Array:
    return pa.array([first_row for _, first_row in pieces], pa.int64())


def read_index(path: Path, filters: Any = None, columns: list[str] | None = None) -> pa.Table:
    """The document index, or the rows of it that match `filters` (see pyarrow.parquet.read_table). Raises ValidationError."""
    try:
        return read_table(path, filters=filters, columns=columns, partitioning=None)
    except FileNotFoundError:
        raise ValidationError(path, "missing.", "Run `tokenmill build` to make the document index.") from None
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ValidationError(path, f"cannot be read: {error}.", "Run `tokenmill build --force`.") from None


def _id(has_names: bool) -> pa.Field:
    return pa.field("id", pa.string() if has_names else pa.int64(), nullable=False)
