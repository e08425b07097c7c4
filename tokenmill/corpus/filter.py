"""The door of filters: which documents are left out of a dataset, each with a reason."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow.compute as pc

from tokenmill.corpus.reader import Batch


class Left(NamedTuple):
    """Why a document is left out. `reason`: the words by which the manifest counts it. `by`: what the filter knows it by, such as
    "id", or else the filter's name."""

    reason: str
    by: str


class Filter(Protocol):
    """Says which documents are left out: they are neither counted nor encoded. Its values can be pickled."""

    def as_key(self) -> Any:
        """All that decides which documents it leaves out, as plain values, for the keys of units."""
        ...

    def left_out(self, shard: str, batch: Batch) -> Mapping[int, Left]:
        """The documents of a batch that it leaves out, by their index. `shard`: the name of their shard.

        Bad documents are null. What is said of them is ignored.
        """
        ...


Filters: TypeAlias = Mapping[str, Filter]
"""Filters by their names. A document has the reason of the first one that leaves it out."""


def left_out(filters: Filters, shard: str, batch: Batch) -> dict[int, Left]:
    """The documents of a batch that filters leave out, by their index, in order."""
    reasons: dict[int, Left] = {}
    for filter in filters.values():
        reasons = {**filter.left_out(shard, batch), **reasons}
    bad = pc.indices_nonzero(batch.digested.is_null()).to_pylist() if batch.digested.null_count else []
    return {i: reasons[i] for i in sorted(reasons.keys() - bad)}


def as_key(filters: Filters) -> dict[str, Any]:
    """All that decides which documents are left out, for the key of a unit. The list of source.drop has an entry of its own in any
    case, which keys had before there were other filters."""
    keys = {name: filter.as_key() for name, filter in filters.items()}
    drop = keys.pop("drop", [])
    return {"drop": drop, "filters": keys} if keys else {"drop": drop}
