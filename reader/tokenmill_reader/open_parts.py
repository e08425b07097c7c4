"""The parts of a file set, open for reading: memory-mapped arrays of a file format, and the sources of their items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tokenmill_reader.errors import ParamsError, ValidationError, need_pyarrow
from tokenmill_reader.formats.items import REBUILD, STARTS_SUFFIX, Flat, Lists, Shape
from tokenmill_reader.formats.table import PARQUET_SUFFIX, READ_FORMATS
from tokenmill_reader.manifest import DatasetFile

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenmill_reader.array_types import Ids, Mask, Starts


OTHER_CONTENT = (
    "Run `tokenmill verify` to see what else differs, and `tokenmill build --force` to make the dataset again."
)
_IN_THE_ROWS = ("arrow", "parquet")


class Place(NamedTuple):
    """A part of a file set: the folder of its files, their name before the suffix, and what the manifest says of it."""

    folder: Path
    stem: str
    n_items: int
    n_tokens: int
    files: Sequence[DatasetFile] = ()


class Block(NamedTuple):
    """Items as in Flat, with all of `ids` used and in the dataset's type: Megatron's int32 has the bits of a uint32. `ids` and
    `loss_mask` are read-only."""

    ids: Ids
    offsets: npt.NDArray[np.int64]
    starts: Lists | None
    labels: npt.NDArray[np.int32] | None
    loss_mask: Mask | None


class OpenPart(NamedTuple):
    """A part whose files are open. `first_items`, `first_tokens`: each block's first item and token in the part, from 0. `load(i)`:
    reads block number i. `held`: what keeps its files here, as long as it is referred to."""

    first_items: Sequence[int]
    first_tokens: Sequence[int]
    load: Callable[[int], Block]
    held: object = None


class Parts(Protocol):
    """The parts of a dataset. `places`: what the manifest says of each part. `are_mapped`: a block's ids stay in the files; those
    of other parts are in memory while they are in use."""

    are_mapped: bool
    places: Sequence[Place]

    def open(self, i: int) -> OpenPart:
        """Opens the part number i. Raises ValidationError if it does not hold what its place says."""


class FlatParts:
    """The parts of a format that has its ids in memory-mapped arrays (see Parts)."""

    are_mapped = True

    def __init__(self, format: str, places: Sequence[Place], shape: Shape) -> None:
        self.places = places
        self._format, self._shape = format, shape

    def open(self, i: int) -> OpenPart:
        """See Parts."""
        place = self.places[i]
        flat = READ_FORMATS[self._format].flat
        assert flat is not None
        blocks = [block_of(one, self._shape.ids) for one in flat(place.folder, place.stem, self._shape)]
        counts = [(len(block.offsets) - 1, len(block.ids)) for block in blocks]
        return open_part(place, counts, blocks.__getitem__)


def block_of(flat: Flat, type: np.dtype[Any]) -> Block:
    """The block of these items, with ids of this type."""
    first, end = flat.offsets[[0, -1]].tolist()
    ids = np.asarray(flat.ids).view(type)[first:end]
    ids.flags.writeable = False
    labels = None if flat.labels is None else flat.labels[first:end]
    mask = None if flat.loss_mask is None else flat.loss_mask[first:end]
    if mask is not None:
        mask.flags.writeable = False
    return Block(ids, flat.offsets - first if first else flat.offsets, flat.starts, labels, mask)


def open_part(place: Place, counts: Sequence[tuple[int, int]], load: Callable[[int], Block]) -> OpenPart:
    """The open part with blocks of so many items and ids, which must be those of its place."""
    *first_items, n_items = accumulate((n for n, _ in counts), initial=0)
    *first_tokens, n_tokens = accumulate((n for _, n in counts), initial=0)
    if (n_items, n_tokens) != (place.n_items, place.n_tokens):
        raise ValidationError(
            place.folder / place.stem,
            f"expected {place.n_items:,} items with {place.n_tokens:,} ids, as the manifest says; found {n_items:,} "
            f"with {n_tokens:,}.",
            OTHER_CONTENT,
        )
    return OpenPart(first_items, first_tokens, load)


class SourceIds:
    """The sources of the items of a dataset's parts, as numbers in the order of `names`. `only`: the name of the only source of
    each part, or None. `are_stored`: the files of other parts have the numbers."""

    def __init__(
        self, places: Sequence[Place], only: Sequence[str | None], names: Sequence[str], format: str, are_stored: bool
    ) -> None:
        self._places, self._only, self._names = places, only, names
        self._format, self._are_stored = format, are_stored
        self._read: dict[int, Lists] = {}

    def of(self, part: int, i: int, n_starts: int) -> Starts:
        """The sources of item number `i` of a part: an int32 for each of its starts. Raises ParamsError if the files lack them, and
        ValidationError."""
        only = self._only[part]
        if only is not None or len(self._names) < 2:
            return np.full(n_starts, 0 if only is None else self._names.index(only), np.int32)
        if part not in self._read:
            self._read[part] = self._load(part)
        values, offsets = self._read[part]
        sources: Starts = values[offsets[i] : offsets[i + 1]]
        if len(sources) != n_starts:
            place = self._places[part]
            raise ValidationError(
                place.folder / place.stem,
                f"item {i:,}: expected {n_starts:,} numbers of sources, one for each start; found {len(sources):,}.",
                REBUILD,
            )
        return sources

    def _load(self, part: int) -> Lists:
        place = self._places[part]
        if not self._are_stored:
            raise ParamsError(
                "source_ids",
                "expected files with the source of each document; found a set of several sources from an earlier tokenmill.",
                "Build the dataset again.",
            )
        is_row = self._format in _IN_THE_ROWS
        path = place.folder / f"{place.stem}{READ_FORMATS[self._format].suffix if is_row else STARTS_SUFFIX}"
        need_pyarrow(path)
        from tokenmill_reader.formats.sidecar import read_source_ids, read_source_ids_of_parquet

        source_ids = (read_source_ids_of_parquet if path.suffix == PARQUET_SUFFIX else read_source_ids)(path)
        n_sources, values = len(self._names), source_ids.values
        if len(source_ids.offsets) - 1 != place.n_items or (
            len(values) and not 0 <= values.min() <= values.max() < n_sources
        ):
            raise ValidationError(
                path, f"expected the sources of {place.n_items:,} items, below {n_sources}; found others.", REBUILD
            )
        return source_ids

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": {}}
