"""The formats that a dataset can be opened in, by their names in params.yaml, the first choice first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from tokenmill_reader.errors import need_pyarrow
from tokenmill_reader.formats import datatrove, llmc, megatron, nanogpt, olmo
from tokenmill_reader.formats.items import ARROW_SUFFIX, Flat, Shape

PARQUET_SUFFIX = ".parquet"
INDEX_NAME = "index"
"""The name in the manifest of the index of packed sequences, which is not one of `encode.formats`."""


class ReadFormat(NamedTuple):
    """A format. `suffix`: that of a part's file with the ids. `flat(folder, stem, shape)`: the ids of a part in order without a
    copy, in one or more arrays; raises ValidationError for malformed or inconsistent files; None if the format has no such arrays.
    `needs_pyarrow`: for documents; `packed_needs_pyarrow`: for packed sequences. `holds_mask`: whether the files have the loss mask
    of conversations; otherwise each token of them is to be learned."""

    suffix: str
    flat: Optional[Callable[[Path, str, Shape], list[Flat]]]
    needs_pyarrow: bool
    packed_needs_pyarrow: bool
    holds_mask: bool = False


def _arrow(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    need_pyarrow(folder / f"{stem}{ARROW_SUFFIX}")
    from tokenmill_reader.formats.arrow_file import read_flat

    return read_flat(folder, stem, shape)


READ_FORMATS: Mapping[str, ReadFormat] = {
    "arrow": ReadFormat(ARROW_SUFFIX, _arrow, True, True, holds_mask=True),
    "megatron": ReadFormat(megatron.DATA, megatron.read_flat, False, True),
    "datatrove": ReadFormat(datatrove.DATA, datatrove.read_flat, False, True, holds_mask=True),
    "olmo": ReadFormat(olmo.DATA, olmo.read_flat, False, False),
    "nanogpt": ReadFormat(nanogpt.DATA, nanogpt.read_flat, True, True),
    "llmc": ReadFormat(llmc.DATA, llmc.read_flat, True, True),
    "parquet": ReadFormat(PARQUET_SUFFIX, None, True, True, holds_mask=True),
}
