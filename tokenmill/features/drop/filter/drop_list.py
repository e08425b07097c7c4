"""source.drop: a list of documents to leave out, each named by its id or by its digest."""

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.corpus.csv_records import other_separator
from tokenmill.corpus.dropped import Dropped
from tokenmill.corpus.filter import Filter, Left
from tokenmill.corpus.parquet_files import checked
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.text_digests import Keys, text_digests, text_keys
from tokenmill.errors import CorpusError, PointerError, of_the_machine
from tokenmill.storage.contents import HEAD_BYTES, content_of
from tokenmill_reader.regular_files import open_regular

if TYPE_CHECKING:
    import polars as pl

_COLUMNS = ("id", "digest", "reason")
_SHA256 = re.compile("[0-9a-fA-F]{64}")
_SHA256_BYTES = 32


class DropLine(NamedTuple):
    """A line of the list: the documents with this id and this sha256 (of their text, or of a conversation's canonical JSON). One of
    them may be None. `place`: where the line is in the file, in words."""

    place: str
    id: str | None
    sha256: bytes | None
    reason: str

    @property
    def by(self) -> str:
        """How the line identifies documents, one of LISTED_BY."""
        return " and ".join(name for name, value in (("id", self.id), ("digest", self.sha256)) if value is not None)


class DropList:
    """The lines of the list, in the order of the file (see DocumentList). A document is left out if a line matches it."""

    def __init__(self, lines: Sequence[DropLine], place: str = "") -> None:
        self.lines: Sequence[DropLine] = lines
        self.place: str = place
        self._by_id: dict[str, list[int]] = {}
        self._by_sha256: dict[bytes, list[int]] = {}
        for i, line in enumerate(lines):
            if line.id is not None:
                self._by_id.setdefault(line.id, []).append(i)
            elif line.sha256 is not None:
                self._by_sha256.setdefault(line.sha256, []).append(i)
        self._ids = pa.array(list(self._by_id), pa.large_string())
        self._digests = pa.array(list(self._by_sha256), pa.binary(32))

    @classmethod
    def read(cls, root: Path, drop: str | None, has_ids: bool) -> "DropList":
        """The list that `drop`, which is source.drop, names, relative to the project's folder `root`; an empty one for null.
        `has_ids`: whether documents have ids.

        Raises CorpusError for a file that is missing or has another form, with the first line that is wrong.
        """
        return cls([], "source.drop: null") if drop is None else cls(_lines(root / drop, drop, has_ids), drop)

    @classmethod
    def recorded(cls, dropped: Dropped, place: str) -> "DropList":
        """The lines that left documents out, rebuilt from these. `place`: the file that has them."""
        return cls(
            [
                DropLine(
                    f"{document['shard']}, row {document['row']}",
                    document["id"] if "id" in document["by"] else None,
                    document["sha256"] if "digest" in document["by"] else None,
                    document["reason"],
                )
                for document in dropped.table.to_pylist()
            ],
            place,
        )

    def __len__(self) -> int:
        return len(self.lines)

    def left_out(self, shard: str, batch: Batch) -> dict[int, Left]:
        """The documents of a batch that lines match (see Filter), each with the first such line."""
        texts = batch.digested
        digests = text_digests(texts) if self._by_sha256 else None
        reasons = {}
        for i, numbers in self._candidates(batch.ids, digests):
            if line := self._first(numbers, _sha256(texts, i)):
                reasons[i] = Left(line.reason, line.by)
        return reasons

    def match(self, ids: Any, digests: Any) -> Iterator[tuple[int, DropLine]]:
        """The index of each document that a line matches, with the first such line. `ids`: large_string, or None; `digests`:
        fixed_size_binary[32], those of the texts."""
        for i, numbers in self._candidates(ids, digests):
            if line := self._first(numbers, digests[i].as_py()):
                yield i, line

    def matching(self, ids: Any, digests: Any) -> Iterator[tuple[int, str]]:
        """The index of each document that a line matches, and that line in words (see DocumentList)."""
        for i, line in self.match(ids, digests):
            yield i, f"{line.place}, leaves it out ({line.reason})"

    @cached_property
    def _keys(self) -> "pl.DataFrame":
        """The keys of each line's id and digest, and whether it has them."""
        import polars as pl  # which workers and plans do not need

        ids = pa.array([line.id for line in self.lines], pa.large_string())
        digests = pa.array([line.sha256 for line in self.lines], pa.binary(32))
        keys = {"id": text_keys(text_digests(ids)), "sha256": text_keys(pc.fill_null(digests, bytes(32)))}
        return pl.DataFrame(keys | {"has_id": ids.is_valid(), "has_sha256": digests.is_valid()})

    def of_unit(self, ids: Keys, texts: Keys) -> "DropList":
        """The lines that may match documents of a unit (see DocumentList). Colliding keys can only give a line too many."""
        import polars as pl

        may_match = self._keys.select(
            (~pl.col("has_id") | pl.col("id").is_in(pl.Series(ids).implode()))
            & (~pl.col("has_sha256") | pl.col("sha256").is_in(pl.Series(texts).implode()))
        )
        return DropList([self.lines[i] for i in may_match.to_series().arg_true().to_list()], self.place)

    def idle(self, of_units: Iterable[Filter], dropped: Dropped) -> str:
        """What there is to say of lines that match no document (see DocumentList). A line with both an id and a digest matches only
        a document that has both."""
        used = {line for some in of_units if isinstance(some, DropList) for line in some.lines}
        by_both = dropped.by(["id and digest"]).table
        named = {*zip(by_both["id"].to_pylist(), by_both["sha256"].to_pylist(), strict=True)}
        idle = [
            line
            for line in self.lines
            if line not in used or (None not in (line.id, line.sha256) and (line.id, line.sha256) not in named)
        ]
        if not idle:
            return ""
        n = f"{len(idle):,} of the {len(self.lines):,} lines"
        return f"{n} of source.drop name no document; the first: {self.place}, {idle[0].place}"

    def _candidates(self, ids: Any, digests: Any) -> Iterator[tuple[int, list[int]]]:
        """Yields the index of each document whose id or digest is in the list, with the numbers of these lines."""
        numbers: dict[int, list[int]] = {}
        if ids is not None and self._by_id:
            for i in pc.indices_nonzero(pc.is_in(ids, value_set=self._ids)).to_pylist():
                numbers.setdefault(i, []).extend(self._by_id[ids[i].as_py()])
        if self._by_sha256:
            for i in pc.indices_nonzero(pc.is_in(digests, value_set=self._digests)).to_pylist():
                numbers.setdefault(i, []).extend(self._by_sha256[digests[i].as_py()])
        yield from sorted(numbers.items())

    def _first(self, numbers: list[int], sha256: bytes) -> DropLine | None:
        lines = (self.lines[i] for i in sorted(numbers))
        return next((line for line in lines if line.sha256 in (None, sha256)), None)

    def as_key(self) -> list[tuple[str | None, str | None, str]]:
        """The lines as plain values, for the key of a unit."""
        return [(line.id, None if line.sha256 is None else line.sha256.hex(), line.reason) for line in self.lines]


def _sha256(texts: Any, i: int) -> bytes:
    digest: bytes = text_digests(texts.slice(i, 1))[0].as_py()
    return digest


def _lines(path: Path, name: str, has_ids: bool) -> list[DropLine]:
    if not path.is_file():
        raise _error(
            f"source.drop: {name}", "expected a .csv or .parquet file; found none.", "Put it there, or set it to null."
        )
    if not name.endswith((".csv", ".parquet")):
        raise _error(f"source.drop: {name}", "expected the suffix .csv or .parquet.", "Rename the file.")
    is_table = name.endswith(".parquet")
    _refuse_other(path, name, "parquet" if is_table else "text")
    read_lines = _parquet if is_table else _csv
    return [_line(name, place, id, digest, reason, has_ids) for place, id, digest, reason in read_lines(path, name)]


def _refuse_other(path: Path, name: str, expected: str) -> None:
    """Raises CorpusError for a file that plainly is of another kind than its name says, and PointerError for a pointer."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise _error(*of_the_machine(error).inside(name)) from None
    content = content_of(head)
    if content is not None and content.is_pointer:
        raise PointerError(name, f"is {content.what}.", content.fix)
    if content is not None and content.name != expected:
        what = f"is {content.what}; expected a {PurePath(name).suffix} file."
        raise _error(name, what, content.fix or "Rename it to what it is.")


def _line(name: str, place: str, id: str | None, digest: str | None, reason: str | None, has_ids: bool) -> DropLine:
    where = f"{name}, {place}"
    if not (reason or "").strip():
        raise _error(where, "column reason: expected a reason; found none.", "Write why the document is left out.")
    if not id and not digest:
        raise _error(
            where, "columns id and digest: expected one of them; found none.", "Name the document, or delete the line."
        )
    if digest and not _SHA256.fullmatch(digest):
        raise _no_digest(where, f"{digest!r:.80}")
    if id and not has_ids:
        raise _error(
            where,
            f"column id: found {id!r:.80}, but id_column is null, so documents have no ids.",
            "Name the document by its digest.",
        )
    assert reason is not None
    return DropLine(place, id or None, bytes.fromhex(digest) if digest else None, reason.strip())


def _csv(path: Path, name: str) -> Iterator[tuple[str, str | None, str | None, str | None]]:
    try:
        content = path.read_bytes().removeprefix(BOM_UTF8)
        if content.endswith(b"\0"):
            what = "ends with zero bytes, as a write that did not end leaves them."
            raise _error(name, what, "Copy or make it again.")
        reader = csv.reader(io.StringIO(content.decode(), newline=""), strict=True)
        columns = next(reader, [])
        if words := other_separator(columns):
            raise _error(name, f"its first line has {words}.", "Write commas between the values.")
        _check_columns(name, columns)
        line = reader.line_num + 1
        for values in reader:
            place, line = f"line {line}", reader.line_num + 1
            if not values:  # a blank line
                continue
            if len(values) != len(columns):
                raise _error(
                    f"{name}, {place}",
                    f"expected {len(columns)} values; found {len(values)}.",
                    "Put a value with a comma in quotes.",
                )
            row = dict(zip(columns, values, strict=True))
            yield place, row.get("id"), row.get("digest"), row["reason"]
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        what = f"expected UTF-8; found {content[error.start]:#04x}."
        raise _error(f"{name}, line {line}", what, "Save the file as UTF-8.") from None
    except csv.Error as error:
        raise _error(f"{name}, line {reader.line_num}", f"expected CSV; {error}.", "Correct the line.") from None
    except OSError as error:
        raise _error(*of_the_machine(error).inside(name)) from None


def _parquet(path: Path, name: str) -> Iterator[tuple[str, str | None, str | None, str | None]]:
    try:
        with path.open("rb") as opened, checked(opened, name) as file:
            _check_columns(name, file.schema_arrow.names)
            row = 0
            for batch in file.iter_batches():
                ids, digests, reasons = (_values(batch, column) for column in _COLUMNS)
                for id, digest, reason in zip(ids, digests, reasons, strict=True):
                    place = f"row {row}"
                    yield place, id, _hexadecimal(digest, f"{name}, {place}"), reason
                    row += 1
    except (OSError, ValueError, NotImplementedError, pa.ArrowException) as error:
        first = str(error).split("\n", 1)[0]
        raise _error(name, f"expected a .parquet file with texts; {first}.", "Make it again.") from None


def _values(batch: pa.RecordBatch, column: str) -> list[Any]:
    """The values of a column as texts, digests also as bytes; None for each where the column is missing."""
    if column not in batch.schema.names:
        return [None] * len(batch)
    kind = batch[column].type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    may_be_digests = column == "digest" and (is_bytes or types.is_binary_view(kind))
    values: list[Any] = batch[column].cast(pa.large_binary() if may_be_digests else pa.large_string()).to_pylist()
    return values


def _hexadecimal(digest: str | bytes | None, where: str) -> str | None:
    """A digest as text. Bytes are either the 32 of a sha256, as in data/tables/documents.parquet, or its digits in a column that
    is not said to be text."""
    if not isinstance(digest, bytes):
        return digest
    if len(digest) == _SHA256_BYTES:
        return digest.hex()
    if not digest.isascii():
        raise _no_digest(where, f"{len(digest):,} bytes")
    return digest.decode()


def _no_digest(where: str, found: str) -> CorpusError:
    expected = f"expected a sha256, as 64 hexadecimal digits or, in a .parquet file, {_SHA256_BYTES} bytes"
    return _error(where, f"column digest: {expected}; found {found}.", "Correct it.")


def _check_columns(name: str, columns: Sequence[str]) -> None:
    unknown = [column for column in columns if column not in _COLUMNS]
    is_right = "reason" in columns and ("id" in columns or "digest" in columns) and len(set(columns)) == len(columns)
    if unknown or not is_right:
        found = ", ".join(columns) or "none"
        raise _error(
            name, f"expected the columns id, digest (or one of them) and reason; found {found}.", "Rename them."
        )


def _error(where: str, what: str | list[str], fix: str) -> CorpusError:
    return CorpusError(where, what, fix, code="TM211")
