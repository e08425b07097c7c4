"""llmc: `.bin` of uint16 ids behind a header of 256 int32, which llm.c and modded-nanogpt read.

The layout is that of `write_datafile` in dev/data/data_common.py of karpathy/llm.c. Where documents end is not in such a file; the
file beside says it, so that the dataset can be checked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import batches_of
from tokenmill.formats.files import new_file
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import checking, refuse_lists, refuse_over_uint16
from tokenmill.formats.sidecar import new_sidecar
from tokenmill_reader.formats.columns import flat_of
from tokenmill_reader.formats.items import INT32_MAX, STARTS_SUFFIX, Shape
from tokenmill_reader.formats.llmc import DATA, header_of, read_flat
from tokenmill_reader.regular_files import naming


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{DATA}"
    n_ids = 0
    with new_file(path) as put, new_sidecar(folder, stem, shape, with_lengths=True) as add_lengths:
        put(header_of(0))  # written again at the end, with the number of ids

        def add(batch: pa.RecordBatch) -> None:
            nonlocal n_ids
            ids = flat_of(batch).ids
            n_ids += ids.size
            if n_ids > INT32_MAX:
                raise ValidationError(
                    path,
                    f"expected at most {INT32_MAX:,} ids, which the header counts in 32 bits; found {n_ids:,} or more.",
                    "Lower encode.file_bytes, or cut the input file into several.",
                )
            put(ids)
            add_lengths(batch)

        yield checking(add, shape, path)
    with naming(path), path.open("r+b") as file:
        file.write(header_of(n_ids).tobytes())


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    yield from batches_of(read_flat(folder, stem, shape)[0], shape, folder / f"{stem}{DATA}")


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    if file_bytes // 2 > INT32_MAX:
        return f"files of llmc must be under 4 GiB, as their header counts ids in 32 bits; {file_bytes:,} bytes are asked for"
    return refuse_over_uint16(shape, "llmc") or refuse_lists(shape, "llmc")


LLMC = Format("llmc", (DATA, STARTS_SUFFIX), _write, _read, read_flat, _refusal)
