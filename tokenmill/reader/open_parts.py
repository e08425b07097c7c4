"""The parts of a file set, open for reading: memory-mapped arrays of a file format, or row groups of Parquet files."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.errors import ValidationError
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.interface import Flat, Shape
from tokenmill.formats.parquet import check_counts
from tokenmill.storage.checked_parquet import parquet_file

Ids = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Mask = npt.NDArray[np.int8]

_FILES_OPEN_MAX = 64
_GROUPS_HELD_MAX = 8  # row groups, of about 2 MB each
_IDS = "input_ids"
_ADVICE = "Run `tokenmill verify` to see what else differs, and `tokenmill build --force` to make the dataset again."


class Place(NamedTuple):
    """A part of a file set: the folder of its files, the name that they have before their suffixes, and what it must hold."""

    folder: Path
    stem: str
    n_items: int
    n_tokens: int


class Block(NamedTuple):
    """Items whose ids are one after another in `ids`, which is read-only, and so is `loss_mask`: as in Flat, with all of `ids` used
    and in the dataset's type. Megatron's int32 has the bits of a uint32."""

    ids: Ids
    offsets: npt.NDArray[np.int64]
    starts: pa.ListArray | None
    labels: npt.NDArray[np.int32] | None
    loss_mask: Mask | None


class OpenPart(NamedTuple):
    """A part whose files are open. `first_items`, `first_tokens`: each block's first item and token in the part, from 0. `load(i)`:
    reads block number i."""

    first_items: Sequence[int]
    first_tokens: Sequence[int]
    load: Callable[[int], Block]


class FlatParts:
    """The parts of a format that has its ids in memory-mapped arrays. `places`: what the manifest says of each part. `are_mapped`:
    a block's ids stay in the files; those of other parts are in memory while they are in use."""

    are_mapped = True

    def __init__(self, format: str, places: Sequence[Place], shape: Shape) -> None:
        self.places = places
        self._format, self._shape = format, shape

    def open(self, i: int) -> OpenPart:
        """Opens the part number i. Raises ValidationError if it does not hold what its place says."""
        place = self.places[i]
        flat = SET_FORMATS[self._format].flat
        assert flat is not None
        type = np.dtype(self._shape.ids.to_pandas_dtype())
        blocks = [_block(one, type) for one in flat(place.folder, place.stem, self._shape)]
        counts = [(len(one.offsets) - 1, len(one.ids)) for one in blocks]
        return _open_part(place, counts, blocks.__getitem__)


class ParquetParts:
    """Files of Parquet as parts. A block is a row group; the last few that were read are held."""

    are_mapped = False

    def __init__(self, places: Sequence[Place], has_mask: bool = False) -> None:
        self.places = places
        self._needed = (_IDS, *["loss_mask"] * has_mask)
        self._file = lru_cache(_FILES_OPEN_MAX)(self._open_file)
        self._group = lru_cache(_GROUPS_HELD_MAX)(self._read_group)

    def open(self, i: int) -> OpenPart:
        """Opens the part number i. Raises ValidationError if it does not hold what its place says."""
        place, metadata = self.places[i], self._file(i).metadata
        check_counts(self._path(i), place.n_items, place.n_tokens)
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        schema = metadata.schema  # a column chunk's own path may be damaged
        wanted = [k for k in range(metadata.num_columns) if schema.column(k).path.split(".")[0] == _IDS]
        counts = [(one.num_rows, sum(one.column(k).num_values for k in wanted)) for one in groups]
        if sum(n_values for _, n_values in counts) != place.n_tokens:  # an empty list counts as a value
            counts = [(one.num_rows, len(self._group(i, k).ids)) for k, one in enumerate(groups)]
        return _open_part(place, counts, partial(self._group, i))

    def _open_file(self, i: int) -> pq.ParquetFile:
        path = self._path(i)
        try:
            file = parquet_file(path, memory_map=True)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ValidationError(path, f"cannot be read: {error}.", _ADVICE) from None
        if missing := [name for name in self._needed if name not in file.schema_arrow.names]:
            raise ValidationError(path, f"expected a column {missing[0]}; found {file.schema_arrow.names}.", _ADVICE)
        return file

    def _read_group(self, i: int, k: int) -> Block:
        file = self._file(i)
        names = [name for name in (_IDS, "starts", "labels", "loss_mask") if name in file.schema_arrow.names]
        try:
            table = file.read_row_group(k, columns=names, use_threads=False)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ValidationError(self._path(i), f"row group {k} cannot be read: {error}.", _ADVICE) from None
        lists = {name: pa.concat_arrays(table[name].chunks) for name in names}
        ids, offsets = lists[_IDS].flatten().to_numpy(), lists[_IDS].offsets.to_numpy().astype(np.int64)
        labels, mask = (lists[one].flatten().to_numpy() if one in lists else None for one in ("labels", "loss_mask"))
        if any(one is not None and len(one) != len(ids) for one in (labels, mask)):
            raise ValidationError(
                self._path(i),
                f"row group {k}: expected as many labels and values of the mask as ids; found others.",
                _ADVICE,
            )
        return _block(Flat(ids, offsets - offsets[0], lists.get("starts"), labels, mask), ids.dtype)

    def _path(self, i: int) -> Path:
        return self.places[i].folder / f"{self.places[i].stem}.parquet"

    def __reduce__(self) -> tuple[Any, ...]:  # another process opens the files again
        return ParquetParts, (self.places, len(self._needed) > 1)


Parts = FlatParts | ParquetParts
"""The parts of a dataset."""


def _block(flat: Flat, type: "np.dtype[Any]") -> Block:
    """The block of these items, with ids of this type."""
    first, end = flat.offsets[[0, -1]].tolist()
    ids = np.asarray(flat.ids).view(type)[first:end]
    ids.flags.writeable = False
    labels = None if flat.labels is None else flat.labels[first:end]
    mask = None if flat.loss_mask is None else flat.loss_mask[first:end]
    if mask is not None:
        mask.flags.writeable = False
    return Block(ids, flat.offsets - first if first else flat.offsets, flat.starts, labels, mask)


def _open_part(place: Place, counts: Sequence[tuple[int, int]], load: Callable[[int], Block]) -> OpenPart:
    """The open part with blocks of so many items and ids, which must be those of its place."""
    *first_items, n_items = accumulate((n for n, _ in counts), initial=0)
    *first_tokens, n_tokens = accumulate((n for _, n in counts), initial=0)
    if (n_items, n_tokens) != (place.n_items, place.n_tokens):
        raise ValidationError(
            place.folder / place.stem,
            f"expected {place.n_items:,} items with {place.n_tokens:,} ids, as the manifest says; found {n_items:,} "
            f"with {n_tokens:,}.",
            _ADVICE,
        )
    return OpenPart(first_items, first_tokens, load)
