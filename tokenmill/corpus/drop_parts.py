"""Finds the lines of source.drop that may match documents of a unit."""

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.corpus.drop import DropList
from tokenmill.corpus.text_digests import Keys, text_digests, text_keys


class DropParts:
    """Finds the lines of a list that may match documents of a unit, from the keys of the unit's ids and texts. Colliding keys can
    only give a line too many."""

    def __init__(self, whole: DropList) -> None:
        self._whole = whole
        ids = pa.array([line.id for line in whole.lines], pa.large_string())
        digests = pa.array([line.sha256 for line in whole.lines], pa.binary(32))
        keys = {"id": text_keys(text_digests(ids)), "sha256": text_keys(pc.fill_null(digests, bytes(32)))}
        known = {"has_id": ids.is_valid(), "has_sha256": digests.is_valid()}
        self._keys = pl.DataFrame(keys | known)

    def of_unit(self, ids: Keys, digests: Keys) -> DropList:
        """The lines that may match, in order. `ids`, `digests`: each key once."""
        may_match = self._keys.select(
            (~pl.col("has_id") | pl.col("id").is_in(pl.Series(ids).implode()))
            & (~pl.col("has_sha256") | pl.col("sha256").is_in(pl.Series(digests).implode()))
        )
        return DropList([self._whole.lines[i] for i in may_match.to_series().arg_true().to_list()])
