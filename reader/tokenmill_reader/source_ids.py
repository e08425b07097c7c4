"""Finds the source of each document of an item: by its part, or in the files, where a set mixes sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill_reader.errors import ParamsError, ValidationError, need_pyarrow
from tokenmill_reader.formats.items import REBUILD, STARTS_SUFFIX, Lists
from tokenmill_reader.formats.table import PARQUET_SUFFIX, READ_FORMATS
from tokenmill_reader.open_parts import Place

if TYPE_CHECKING:
    from tokenmill_reader.array_types import Starts

_IN_THE_ROWS = ("arrow", "parquet")


class SourceIds:
    """The sources of the items of a dataset's parts, as numbers in the order of `names`, those of the manifest. `only`: the name of
    the only source of each part; None if there is none. `are_stored`: parts without an only source have the numbers in their files,
    which are read when they are needed; they need 4 bytes of memory for each start, and 8 for each item.
    """

    def __init__(
        self, places: Sequence[Place], only: Sequence[str | None], names: Sequence[str], format: str, are_stored: bool
    ) -> None:
        self._places, self._only, self._names = places, only, names
        self._format, self._are_stored = format, are_stored
        self._read: dict[int, Lists] = {}

    def of(self, part: int, i: int, n_starts: int) -> Starts:
        """The sources of item number `i` of a part: an int32 for each of its starts. Raises ParamsError if the dataset does not say
        them, and ValidationError if a file of it is not as it should be."""
        only = self._only[part]
        if only is not None or len(self._names) < 2:
            return np.full(n_starts, 0 if only is None else self._names.index(only), np.int32)
        if part not in self._read:
            self._read[part] = self._load(part)
        values, offsets = self._read[part]
        found: Starts = values[offsets[i] : offsets[i + 1]]
        if len(found) != n_starts:
            place = self._places[part]
            raise ValidationError(
                place.folder / place.stem,
                f"item {i:,}: expected {n_starts:,} numbers of sources, one for each start; found {len(found):,}.",
                REBUILD,
            )
        return found

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

        found = (read_source_ids_of_parquet if path.suffix == PARQUET_SUFFIX else read_source_ids)(path)
        n_sources, values = len(self._names), found.values
        if len(found.offsets) - 1 != place.n_items or (
            len(values) and not 0 <= values.min() <= values.max() < n_sources
        ):
            raise ValidationError(
                path, f"expected the sources of {place.n_items:,} items, below {n_sources}; found others.", REBUILD
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": {}}
