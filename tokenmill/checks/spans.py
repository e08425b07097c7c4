"""Rows of a token dataset beside the documents that they must match, and comparisons that name the first wrong one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.chat.answers import AnswerCounts
from tokenmill.checks.findings import WrongRowError
from tokenmill.corpus.reader import Batch
from tokenmill.quantities import number_of


@dataclass(frozen=True)
class Span:
    """Rows of a dataset file from row `at` on, and the documents that they must match. `shards`: the shard of each piece of their
    unit. `answers`: counts of answers; None before conversations are checked."""

    shards: Sequence[str]
    at: int
    documents: Batch
    tokens: pa.RecordBatch
    answers: AnswerCounts | None = None

    @property
    def is_chat(self) -> bool:
        """Whether the rows are of conversations."""
        return "loss_mask" in self.tokens.schema.names

    def shard(self, i: int) -> str:
        """The shard of the i-th document."""
        return self.shards[self.documents.piece(i)]

    def row(self, i: int) -> int:
        """The row in the shard of the i-th document."""
        found: int = self.documents.rows()[i].as_py()
        return found

    def place(self, i: int) -> str:
        """The name of the i-th document."""
        return f"{self.shard(i)}, row {self.row(i)}"

    def wrong(self, i: int, what: str) -> WrongRowError:
        """The error for the i-th row. `what`: how it differs from its document."""
        return WrongRowError(self.shard(i), self.row(i), what)


def aligned(
    documents: Iterable[Batch], shards: Sequence[str], tokens: Iterator[pa.RecordBatch], filters: Sequence[str] = ()
) -> Iterator[Span]:
    """Pairs documents with their rows, in order. `shards`: the shard of each piece of their unit. `filters`: the names of what
    left documents out.

    Raises WrongRowError if one side has more than the other.
    """
    held, n_rows_before, shard, row = next(tokens, None), 0, shards[0], 0
    for batch in documents:
        while len(batch.texts):
            shard, row = shards[batch.piece(0)], batch.first_row
            while held is not None and not held.num_rows:
                held = None  # a slice without rows keeps them all in memory while the next are read
                held = next(tokens, None)
            if held is None:
                kept = f", and is not left out by {' or '.join(filters)}" if filters else ""
                what = f"the document is not in the dataset, whose file for it holds {n_rows_before}{kept}."
                raise WrongRowError(shard, row, what)
            n_rows = min(len(batch.texts), held.num_rows)
            yield Span(shards, n_rows_before, batch.slice(0, n_rows), held.slice(0, n_rows))
            shard, row = shards[batch.piece(n_rows - 1)], batch.rows()[n_rows - 1].as_py() + 1
            batch, held, n_rows_before = batch.slice(n_rows), held.slice(n_rows), n_rows_before + n_rows
        del batch
    rest = (held.num_rows if held is not None else 0) + sum(more.num_rows for more in tokens)
    if rest:
        kept = f" that are not left out by {' or '.join(filters)}" if filters else ""
        raise WrongRowError(
            shard, row, f"the dataset holds {number_of(rest, 'row')} more than there are documents{kept}."
        )


def same_ids(span: Span, i: int, found: list[int], expected: list[int], of: str) -> None:
    """Raises WrongRowError if the ids of the i-th row differ. `of`: names the expected ids in the message."""
    if found != expected:
        pairs = enumerate(zip(found, expected, strict=False))
        at = next((k for k, (a, b) in pairs if a != b), min(len(found), len(expected)))
        raise span.wrong(
            i, f"ids differ from {of} from token {at} on: found {found[at : at + 5]}, expected {expected[at : at + 5]}."
        )


def all_equal(span: Span, found: pa.Array, expected: pa.Array, what: str, n_before: int = 0) -> None:
    """Raises WrongRowError for the first row that differs. `what`: is compared. `n_before`: the bytes of each value that stand
    before the document's own, and are not counted in the place of a difference."""
    if found.equals(expected):
        return
    i = pc.index(pc.fill_null(pc.equal(found, expected), False), False).as_py()
    found_value, expected_value = found[i].as_py(), expected[i].as_py()
    place = ""
    if isinstance(found_value, bytes | str) and isinstance(expected_value, bytes | str):
        at = next(
            (k for k, (a, b) in enumerate(zip(found_value, expected_value, strict=False)) if a != b),
            min(len(found_value), len(expected_value)),
        )
        found_value, expected_value, place = (
            found_value[at : at + 20],
            expected_value[at : at + 20],
            f" from {max(at - n_before, 0)} on",
        )
    raise span.wrong(i, f"{what}{place}: found {found_value!r}, expected {expected_value!r}.")
