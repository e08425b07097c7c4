"""datatrove: `.ds` with the ids, `.ds.index` with where documents end, `.ds.metadata` with how many there are of which size, and of
conversations `.ds.loss` with a byte for each id: 1 where it is to be learned, else 0.

The layout is that of `TokenizedFile` in src/datatrove/pipeline/tokens/tokenizer.py. The index of packed sequences has the ends of
their segments, which are the documents or parts of them; the file beside says how many segments a sequence has.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa

from tokenmill.formats.batches import batches_of
from tokenmill.formats.files import new_file
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import checking, refuse_lists
from tokenmill.formats.sidecar import new_sidecar
from tokenmill_reader.formats.columns import flat_of
from tokenmill_reader.formats.datatrove import DATA, INDEX, MASK, METADATA, metadata_of, read_flat
from tokenmill_reader.formats.items import STARTS_SUFFIX, Shape, segment_ends


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{DATA}"
    n_tokens = 0
    with (
        new_file(path) as put,
        new_file(folder / f"{stem}{INDEX}") as put_ends,
        new_sidecar(folder, stem, shape) as add_starts,
        new_file(folder / f"{stem}{MASK}") if shape.has_mask else nullcontext(lambda data: None) as put_mask,
    ):

        def add(batch: pa.RecordBatch) -> None:
            nonlocal n_tokens
            flat = flat_of(batch)
            put(flat.ids)
            put_ends((n_tokens + segment_ends(flat)).astype("<u8"))
            if flat.loss_mask is not None:
                put_mask(flat.loss_mask)
            add_starts(batch)
            n_tokens += int(flat.offsets[-1])

        yield checking(add, shape, path)
    with new_file(folder / f"{stem}{METADATA}") as put:
        put(metadata_of(shape, n_tokens).encode())


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    yield from batches_of(read_flat(folder, stem, shape)[0], shape, folder / f"{stem}{DATA}")


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    if "|" in shape.tokenizer_digest:
        return "datatrove's metadata cannot hold the name of a tokenizer with a | in it"
    return refuse_lists(shape, "datatrove")


DATATROVE = Format(
    "datatrove",
    (DATA, INDEX, METADATA),
    _write,
    _read,
    read_flat,
    _refusal,
    packed_suffixes=(STARTS_SUFFIX,),
    mask_suffixes=(MASK,),
)
