"""parquet: the rows as they are."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate, pairwise, product
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import even_batches
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import check_items, checking
from tokenmill.formats.tokens import schema
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.formats.columns import columns, named
from tokenmill_reader.formats.items import REBUILD, Shape
from tokenmill_reader.formats.parquet import reading
from tokenmill_reader.regular_files import naming

_SUFFIX = ".parquet"
_GROUP_BYTES_MAX = 1 << 21  # of a row group that is made of several batches
_GROUP_ROWS_MAX = 1 << 14
_PAGE_VALUES = 1 << 18  # integers of a page of lists, 1 MB before compression
_PIECE_IDS = 1 << 16  # of a row group: pyarrow writes it piece by piece, which is faster than all of it at once
_GROUPS_MAX = 2**15 - 1  # of a file: the number of a row group has 16 bits
_N_AHEAD = 2  # row groups that are decoded at the same time: one part of a dataset can keep two cores busy


@contextmanager
def write_tokens(path: Path, shape: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yields a function that adds a batch of rows to a new file of the dataset. The same batches give the same bytes.

    Several small batches are joined into one row group; otherwise a file of many small shards would have a row group for each.
    """
    held: list[pa.RecordBatch] = []
    n_rows = n_bytes = 0
    with _row_groups(path, shape) as write:

        def add(batch: pa.RecordBatch) -> None:
            nonlocal n_rows, n_bytes
            if held and (n_rows + batch.num_rows > _GROUP_ROWS_MAX or n_bytes + batch.nbytes > _GROUP_BYTES_MAX):
                write(held)
                held.clear()
                n_rows = n_bytes = 0
            held.append(batch)
            n_rows, n_bytes = n_rows + batch.num_rows, n_bytes + batch.nbytes

        yield add
        if held:
            write(held)


@contextmanager
def _row_groups(path: Path, shape: pa.Schema) -> Iterator[Callable[[Sequence[pa.RecordBatch]], None]]:
    """Yields a function that adds batches as one row group to a new file. Raises ValidationError for more row groups than a
    file can have.

    With BYTE_STREAM_SPLIT files of token ids are the smallest and are written the fastest (docs/design/tried.md). pyarrow never
    cuts a list: a long document has a page of its own, and pyarrow takes 22 bytes for each of its ids."""
    n_groups = 0
    lists = [field.name for field in shape if pa.types.is_list(field.type)]
    with (
        naming(path),
        pq.ParquetWriter(
            path,
            shape,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            column_encoding={f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in lists},
            write_batch_size=_PAGE_VALUES,
            write_statistics=[name for name in ("id",) if name in shape.names],
        ) as writer,
    ):

        def write(batches: Sequence[pa.RecordBatch]) -> None:
            nonlocal n_groups
            n_groups += 1
            if n_groups > _GROUPS_MAX:
                raise ValidationError(
                    path,
                    f"a Parquet file has at most {_GROUPS_MAX:,} row groups; these documents need more.",
                    "Lower encode.file_bytes, or cut the input file into several.",
                )
            rows = pa.Table.from_batches(batches).combine_chunks()  # one batch is not copied
            n_ids = pc.sum(pc.list_value_length(rows["input_ids"])).as_py() or 0
            pieces = rows.to_batches(max(1, len(rows) * _PIECE_IDS // max(n_ids, _PIECE_IDS)))
            writer.write_table(pa.Table.from_batches(pieces, shape), max(1, len(rows)))

        yield write


def read_tokens(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a dataset file, batch by batch. Raises ValidationError if it is not such a file."""
    for group in range(len(_rows_of_groups(path))):
        yield from _read_group(path, group)


def read_ahead(
    paths: Sequence[Path], wanted: Sequence[range] | None = None
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The rows of several dataset files, batch by batch, each with the index of its file and the number of its first row there.
    Two row groups are decoded at the same time, while the caller uses earlier ones. `wanted`: the rows of each file that are
    needed; row groups without any are not read. Raises ValidationError as `read_tokens` does."""
    with ThreadPoolExecutor(_N_AHEAD, thread_name_prefix="read") as pool:
        waiting: deque[tuple[int, int, Future[list[pa.RecordBatch]]]] = deque()
        for i, path in enumerate(paths):
            if wanted is not None and not wanted[i]:
                continue
            for group, rows in enumerate(_rows_of_groups(path)):
                if wanted is not None and (rows.stop <= wanted[i].start or wanted[i].stop <= rows.start):
                    continue
                waiting.append((i, rows.start, pool.submit(_read_group, path, group)))
                if len(waiting) > _N_AHEAD:
                    yield from _numbered(*waiting.popleft())
        for one in waiting:
            yield from _numbered(*one)


def _numbered(file: int, row: int, batches: Future[list[pa.RecordBatch]]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    for batch in batches.result():
        yield file, row, batch
        row += len(batch)


def _rows_of_groups(path: Path) -> list[range]:
    """The rows of each row group of a dataset file. Raises ValidationError if it is not such a file."""
    with reading(path), parquet_file(path) as file:
        schema_there = file.schema_arrow
        either = (True, False)
        allowed = [schema(ids, *flags) for ids in (pa.uint16(), pa.uint32()) for flags in product(either, either)]
        if not any(schema_there.equals(shape) for shape in allowed):
            raise ValidationError(
                path,
                "expected the columns id, input_ids (list of uint16 or uint32) and n_bytes, and of conversations "
                f"loss_mask and sha256; found {named(schema_there)}.",
                "Delete the dataset and build it again.",
            )
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        return [range(a, b) for a, b in pairwise(accumulate(sizes, initial=0))]


def _read_group(path: Path, group: int) -> list[pa.RecordBatch]:
    with reading(path), parquet_file(path) as file:
        # verify, whose own threads each read a file, is 1.1 times as fast without pyarrow's; in one thread it is the same.
        batches: list[pa.RecordBatch] = file.read_row_group(group, use_threads=False).to_batches()
        return batches


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_SUFFIX}"
    kept = columns(shape)
    with (
        _row_groups(path, kept) as write,
        even_batches(
            lambda batch: write([batch]), "input_ids", _GROUP_ROWS_MAX, _GROUP_BYTES_MAX // shape.ids.itemsize
        ) as put,
    ):
        yield checking(lambda batch: put(batch.select(kept.names)), shape, path)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    path = folder / f"{stem}{_SUFFIX}"
    kept = columns(shape)
    n_items = 0
    try:
        with parquet_file(path) as file:
            if not file.schema_arrow.equals(kept):
                raise ValidationError(
                    path, f"expected the columns {named(kept)}; found {named(file.schema_arrow)}.", REBUILD
                )
            for group in range(file.num_row_groups):
                for batch in file.read_row_group(group).to_batches():
                    batch.validate(full=True)
                    check_items(batch, shape, path, n_items)
                    yield batch
                    n_items += batch.num_rows
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a name in it is not UTF-8
        raise ValidationError(path, f"cannot be read: {error}.", REBUILD) from None


PARQUET = Format("parquet", (_SUFFIX,), _write, _read, None, lambda shape, file_bytes: None, is_table=True)
