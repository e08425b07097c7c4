"""The parts of a file set, open for reading: memory-mapped arrays of a file format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.items import Flat, Lists, Shape
from tokenmill_reader.formats.table import READ_FORMATS
from tokenmill_reader.manifest import DatasetFile

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenmill_reader.array_types import Ids, Mask


OTHER_CONTENT = (
    "Run `tokenmill verify` to see what else differs, and `tokenmill build --force` to make the dataset again."
)


class Place(NamedTuple):
    """A part of a file set: the folder of its files, the name that they have before their suffixes, and what it must hold. `files`:
    what the manifest says of its files."""

    folder: Path
    stem: str
    n_items: int
    n_tokens: int
    files: Sequence[DatasetFile] = ()


class Block(NamedTuple):
    """Items whose ids are one after another in `ids`, which is read-only, and so is `loss_mask`: as in Flat, with all of `ids` used
    and in the dataset's type. Megatron's int32 has the bits of a uint32."""

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
        counts = [(len(one.offsets) - 1, len(one.ids)) for one in blocks]
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
