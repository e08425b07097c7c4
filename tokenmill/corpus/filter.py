"""The door of filters: which documents are left out of a dataset, each with a reason."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from tokenmill.corpus.reader import Batch
from tokenmill.corpus.text_digests import text_digests


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


class DroppedDocument(msgspec.Struct, frozen=True):
    """A document that was left out. `id`: as text; None if documents have none. `sha256`: that of its text, or of a conversation's
    canonical JSON. `reason`, `by`: see Left.

    `row` counts from the start of the shard; in a unit's record, from the start of the piece with the index `piece`.
    """

    row: int
    id: str | None
    sha256: bytes
    reason: str
    by: str
    piece: int = 0

    def moved(self, n_rows: int, piece: int = 0) -> "DroppedDocument":
        """A copy with `n_rows` added to its row, for the piece with this index."""
        return msgspec.structs.replace(self, row=self.row + n_rows, piece=piece)


def left_out(filters: Filters, shard: str, batch: Batch) -> dict[int, Left]:
    """The documents of a batch that filters leave out, by their index, in order."""
    reasons: dict[int, Left] = {}
    for filter in filters.values():
        reasons = {**filter.left_out(shard, batch), **reasons}
    return {i: reasons[i] for i in sorted(reasons) if batch.digested[i].is_valid}


def dropped_documents(filters: Filters, shard: str, batch: Batch) -> list[DroppedDocument]:
    """The documents of a batch that filters leave out, in order, with their rows in the shard."""
    return [
        DroppedDocument(
            batch.first_row + i,
            None if batch.ids is None else batch.ids[i].as_py(),
            text_digests(batch.digested.slice(i, 1))[0].as_py(),
            left.reason,
            left.by,
        )
        for i, left in left_out(filters, shard, batch).items()
    ]


def as_key(filters: Filters) -> dict[str, Any]:
    """All that decides which documents are left out, for the key of a unit. The list of source.drop has an entry of its own in any
    case, which keys had before there were other filters."""
    keys = {name: filter.as_key() for name, filter in filters.items()}
    drop = keys.pop("drop", [])
    return {"drop": drop, "filters": keys} if keys else {"drop": drop}
