"""olmo_sft: whole conversations for OLMo-core: the files of olmo, and one with a byte for each id: 1 where it is to be learned.

The names and layouts are those of scripts/data/convert_sft_data_for_olmocore.py of allenai/open-instruct, whose lines have start
and end alone. NumpyPackedFSLDataset of OLMo-core packs the conversations, and reads the mask by `label_mask_paths`. In local
files it finds them by the id that ends them (iter_document_indices in olmo_core/data/utils.py), so that id must be at the end of
each and nowhere else.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.formats.files import new_file
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import checking
from tokenmill.formats.olmo import new_part, read_documents
from tokenmill.formats.sidecar import new_sidecar
from tokenmill_reader.formats.arrays import read_mask, whole_values
from tokenmill_reader.formats.columns import flat_of
from tokenmill_reader.formats.items import Flat, Shape

_DATA, _MASK, _LINES = "token_ids_*.npy", "labels_mask_*.npy", "token_ids_*.csv.gz"
_MEND = "For olmo_sft, take a chat template that ends each conversation with a token of its own, as that of OLMo does."


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    data, mask, lines = _paths(folder, stem)
    end: int | None = None
    with (
        new_part(data, lines) as add_ids,
        new_file(mask) as put_mask,
        new_sidecar(folder, stem, shape, with_starts=False) as add_sources,
    ):

        def add(batch: pa.RecordBatch) -> None:
            nonlocal end
            flat = flat_of(batch)
            assert flat.loss_mask is not None
            if flat.ids.size:
                end = int(flat.ids[flat.offsets[1] - 1]) if end is None else end
                _check_ends(flat, end, batch)
            add_ids(batch)
            put_mask(flat.loss_mask)
            add_sources(batch)

        yield checking(add, shape, data)


def _paths(folder: Path, stem: str) -> list[Path]:
    return [folder / name.replace("*", stem) for name in (_DATA, _MASK, _LINES)]


def _check_ends(flat: Flat, end: int, batch: pa.RecordBatch) -> None:
    """Raises ValidationError for a conversation of the batch that has the id `end` elsewhere than at its end alone."""
    at = np.flatnonzero(flat.ids == end)
    if np.array_equal(at + 1, flat.offsets[1:]):
        return
    n_ends, last = np.diff(np.searchsorted(at, flat.offsets)), flat.ids[flat.offsets[1:] - 1]
    i = int(np.argmax((n_ends != 1) | (last != end)))
    raise ValidationError(
        f"{batch['shard'][i]}, row {batch['row'][i]}",
        f"expected the id {end}, which ends the first conversation, at the end of each and nowhere else, as OLMo-core finds "
        f"conversations by it; found it {n_ends[i]} times, and {last[i]} at the end.",
        _MEND,
    )


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    data, mask, lines = _paths(folder, stem)
    ids = whole_values(data, shape.ids)
    yield from read_documents(data, lines, shape, read_mask(mask, data, ids.size))


def _finish(folder: Path, stems: Sequence[str], shape: Shape) -> None:
    """Writes nothing. Raises ValidationError if the parts end conversations with different ids."""
    last: dict[int, Path] = {}
    for stem in stems:
        path = _paths(folder, stem)[0]
        ids: npt.NDArray[Any] = whole_values(path, shape.ids)
        last |= {int(id): path for id in ids[-1:]}
    if len(last) > 1:
        ends = ", ".join(f"{id} in {path.name}" for id, path in last.items())
        raise ValidationError(folder, f"expected conversations that end with one id; found {ends}.", _MEND)


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    if not shape.has_mask:
        return (
            "olmo_sft holds conversations with a loss mask; these documents have none. Set encode.chat, or choose olmo"
        )
    if shape.length is not None:
        return "olmo_sft holds whole conversations, which OLMo-core packs itself; set encode.pack: null"
    return None


OLMO_SFT = Format(
    "olmo_sft", (_DATA, _MASK, _LINES), _write, _read, None, _refusal, _finish, has_places=True, part="part_"
)
