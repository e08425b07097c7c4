"""The door of filters: which documents are left out of a dataset, each with a reason."""

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import pyarrow.compute as pc

from tokenmill.corpus.reader import Batch, LeaveOut
from tokenmill.corpus.text_digests import Keys

if TYPE_CHECKING:
    from tokenmill.corpus.dropped import Dropped

LISTED_BY = frozenset({"id", "digest", "id and digest"})
"""What the lines of a list know documents by: the values of `by` in dropped.parquet that come from a list."""


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


class DocumentList(Filter, Sized, Protocol):
    """A filter of single documents, which the lines of a list name. A unit has the lines that may match its documents, so that one
    line more redoes only the units with its documents. `place`: where the lines are, in words."""

    place: str

    def of_unit(self, ids: Keys, texts: Keys) -> "DocumentList":
        """The lines that may match documents of a unit, in order. `ids`, `texts`: their `text_keys`, each once."""
        ...

    def matching(self, ids: Any, digests: Any) -> Iterator[tuple[int, str]]:
        """The index of each document that a line matches, and which line that is and its reason, in words. `ids`: large_string, or
        None; `digests`: fixed_size_binary[32], those of the texts."""
        ...

    def idle(self, of_units: Iterable[Filter], dropped: "Dropped") -> str:
        """What there is to say of lines that match no document; empty if all do. `of_units`: the lines of each unit; `dropped`: the
        documents that were left out."""
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


def leaving_out(filters: Filters, shard: str) -> LeaveOut | None:
    """What `read_batches` takes, so that it leaves out what these filters do; None if there are none."""
    return (lambda batch: [*left_out(filters, shard, batch)]) if filters else None
