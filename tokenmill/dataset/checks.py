"""Checks that the rows of a token dataset match their documents."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.corpus.reader import Batch
from tokenmill.errors import TokenizerError, ValidationError
from tokenmill.tokenizer.tokenizer import Tokenizer

_COMPARED_BYTES_MAX = 1 << 20  # tokenizers needs 200 bytes of memory and more per byte of a document


@dataclass(frozen=True)
class Span:
    """Rows of a dataset file, from row `at` on, and the documents of a shard that they must match."""

    shard: str
    at: int
    documents: Batch
    tokens: pa.RecordBatch

    def row(self, i: int) -> int:
        """The row in the shard of the i-th document."""
        found: int = self.documents.rows()[i].as_py()
        return found


def aligned(
    documents: Iterable[tuple[int, Batch]], shards: Sequence[str], tokens: Iterator[pa.RecordBatch]
) -> Iterator[Span]:
    """Pairs documents, which come with the index of their shard in `shards`, with their rows, in order.

    Raises ValidationError if one side has more than the other.
    """
    held, at, shard, row = next(tokens, None), 0, "", 0
    for i, batch in documents:
        shard, row = shards[i], batch.first_row
        while len(batch.texts):
            while held is not None and not held.num_rows:
                held = next(tokens, None)
            if held is None:
                raise ValidationError(
                    f"{shard}: row {row}: the document is not in the dataset, whose file for it holds {at}."
                )
            n_rows = min(len(batch.texts), held.num_rows)
            yield Span(shard, at, batch.slice(0, n_rows), held.slice(0, n_rows))
            batch, held, at = batch.slice(n_rows), held.slice(n_rows), at + n_rows
            row = batch.first_row
    rest = (held.num_rows if held is not None else 0) + sum(more.num_rows for more in tokens)
    if rest:
        raise ValidationError(f"{shard}: row {row}: the dataset holds {rest} rows more than there are documents.")


def check_span(span: Span, tokenizer: Tokenizer, end_id: int | None, special_in_text: bool = False) -> None:
    """Checks that each document's name, length and bytes match its row, that no id is out of range, and that the only special
    token is the last one.

    `special_in_text`: ids of special tokens may also occur inside documents.

    Raises ValidationError with the first wrong row.
    """
    names = span.documents.ids
    if names is None:
        _all_equal(span, span.tokens["id"], span.documents.rows(), "id")
    else:
        _all_equal(span, span.tokens["id"].cast(pa.large_string()), names, "id")
    _all_equal(span, span.tokens["n_bytes"], pc.binary_length(span.documents.texts).cast(pa.int64()), "n_bytes")
    input_ids = span.tokens["input_ids"]
    _check_ids(span, input_ids, tokenizer, end_id, special_in_text)
    try:
        found = tokenizer.decode_batch(input_ids, threads=1)
    except TokenizerError as error:
        raise _unknown_id(span, input_ids, tokenizer, error) from None
    expected = span.documents.texts.cast(pa.large_binary())
    if end_id is not None:
        end = pa.scalar(tokenizer.token_bytes(end_id), pa.large_binary())
        expected = pc.binary_join_element_wise(expected, end, pa.scalar(b"", pa.large_binary()))
    _all_equal(span, found, expected, "decoded bytes")


def check_against(span: Span, reference: Any, end_id: int | None, rows: set[int]) -> int:
    """Compares the ids of the chosen rows of the file with those of `reference` (a tokenizers.Tokenizer), and gives the number of
    rows compared. Documents longer than 1 MiB are skipped, because tokenizers would need unbounded memory for them.

    Raises ValidationError with the first row that differs.
    """
    there = [row - span.at for row in rows if 0 <= row - span.at < span.tokens.num_rows]
    chosen = [i for i in there if span.tokens["n_bytes"][i].as_py() <= _COMPARED_BYTES_MAX]
    for i in sorted(chosen):
        # A batch of one lets other threads run meanwhile. The fast variant, without offsets, takes half the time.
        [encoding] = reference.encode_batch_fast([span.documents.texts[i].as_py()], add_special_tokens=False)
        expected = encoding.ids
        if end_id is not None:
            expected.append(end_id)
        found = span.tokens["input_ids"][i].as_py()
        if found != expected:
            at = next(
                (k for k, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
                min(len(found), len(expected)),
            )
            raise ValidationError(
                f"{span.shard}: row {span.row(i)}: ids differ from those of the tokenizers library from token {at} on: "
                f"found {found[at : at + 5]}, expected {expected[at : at + 5]}."
            )
    return len(chosen)


def _check_ids(
    span: Span, input_ids: pa.ListArray, tokenizer: Tokenizer, end_id: int | None, special_in_text: bool
) -> None:
    values = input_ids.flatten().cast(pa.uint32())
    if len(values) and pc.max(values).as_py() > tokenizer.id_max:
        i = _row_of_value(input_ids, pc.index(pc.greater(values, tokenizer.id_max), True).as_py())
        raise ValidationError(
            f"{span.shard}: row {span.row(i)}: id {pc.max(input_ids[i].values).as_py()} is out of range; "
            f"the tokenizer's largest id is {tokenizer.id_max}."
        )
    special = pc.is_in(values, pa.array(sorted(tokenizer.special_tokens.values()), values.type))
    ends = pa.array([], pa.int64())
    if end_id is not None:
        lengths = pc.list_value_length(input_ids)
        if len(lengths) and pc.min(lengths).as_py() < 1:
            i = pc.index(lengths, 0).as_py()
            raise ValidationError(
                f"{span.shard}: row {span.row(i)}: expected the end-of-document id {end_id}; found no id."
            )
        ends = pc.subtract(pc.cumulative_sum(lengths.cast(pa.int64())), 1)
        _all_equal(
            span, values.take(ends).cast(pa.int64()), pa.repeat(pa.scalar(end_id, pa.int64()), len(ends)), "last id"
        )
    if not special_in_text and (pc.sum(special).as_py() or 0) != len(ends):
        allowed = set(ends.to_pylist())
        at = next(k for k in pc.indices_nonzero(special).to_pylist() if k not in allowed)
        i = _row_of_value(input_ids, at)
        raise ValidationError(
            f"{span.shard}: row {span.row(i)}: special token id {values[at].as_py()} inside a document; "
            "text never becomes a special token."
        )


def _unknown_id(span: Span, input_ids: pa.ListArray, tokenizer: Tokenizer, error: TokenizerError) -> ValidationError:
    """The error for the first row with an id that is not in the vocabulary."""
    for i, ids in enumerate(input_ids):
        try:
            tokenizer.decode_bytes(ids.values)
        except TokenizerError as found:
            return ValidationError(f"{span.shard}: row {span.row(i)}: {found}")
    return ValidationError(f"{span.shard}: from row {span.row(0)} on: {error}")


def _row_of_value(lists: pa.ListArray, at: int) -> int:
    """The index of the list that holds value `at` of `lists.flatten()`."""
    ends = pc.cumulative_sum(pc.list_value_length(lists).cast(pa.int64()))
    i: int = pc.index(pc.greater(ends, at), True).as_py()
    return i


def _all_equal(span: Span, found: pa.Array, expected: pa.Array, what: str) -> None:
    if found.equals(expected):
        return
    i = pc.index(pc.fill_null(pc.equal(found, expected), False), False).as_py()
    one, other = found[i].as_py(), expected[i].as_py()
    place = ""
    if isinstance(one, bytes | str) and isinstance(other, bytes | str):
        at = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        one, other, place = one[at : at + 20], other[at : at + 20], f" from {at} on"
    raise ValidationError(f"{span.shard}: row {span.row(i)}: {what}{place}: found {one!r}, expected {other!r}.")
