"""Finds the document that a token came from, and the tokens that a document became, by the document index."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.analysis.beside import beside, own_tokenizer
from tokenmill.dataset.manifest import read_manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.errors import ParamsError, TokenizerError, ValidationError
from tokenmill.layout import TABLES_DIRECTORY
from tokenmill.quantities import number_of
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.formats.parquet import check_counts
from tokenmill_reader.manifest import check_is_dataset

N_LISTED_MAX = 20

_N_AROUND = 20  # tokens before and behind the one that is looked for
_DIGITS = range(8, 65)  # hexadecimal digits of a sha256 that are enough


@dataclass(frozen=True)
class LocatedDocument:
    """A document of the dataset. `shard`, `row`: where its text is. `file`, `row_in_file`: where its tokens are. `first_token`: the
    position of its first token in the whole dataset, from 0. `n_bytes`, `sha256`: those of its text in UTF-8. In a dataset of
    conversations, `sha256` is that of the messages; `n_messages` and `n_trained` count the messages and the trained tokens. With
    `turns: each`, a document is a sample: the first `n_messages` of the conversation, whose id, row and `sha256` it has."""

    id: str | int
    shard: str
    row: int
    file: str
    row_in_file: int
    first_token: int
    n_tokens: int
    n_bytes: int
    sha256: str
    n_messages: int | None = None
    n_trained: int | None = None


@dataclass(frozen=True)
class LocatedToken:
    """A token in its document. `position`: in the whole dataset. `position_in_document`: from 0. `begins`, `ends`: whether it is
    the document's first or last token. `bytes`: in hex. `before`, `text`, `after`: up to 20 tokens of the document before it,
    itself, and up to 20 behind it, decoded. `trained`: whether the loss counts it; None in a dataset of documents."""

    position: int
    position_in_document: int
    trained: bool | None
    begins: bool
    ends: bool
    id: int
    bytes: str
    before: str
    text: str
    after: str


@dataclass(frozen=True)
class Located:
    """The result of a search. `asked`: the request in words. `documents`: the first 20 of `n_found`. `token`: None unless
    requested. `why_none`: the message if nothing was found."""

    dataset: Path
    asked: str
    n_found: int
    documents: list[LocatedDocument]
    token: LocatedToken | None
    why_none: str

    def as_json(self) -> dict[str, Any]:
        """The result as values of JSON."""
        documents, token = [asdict(document) for document in self.documents], self.token and asdict(self.token)
        return {"dataset": str(self.dataset), "n_found": self.n_found, "documents": documents, "token": token}


def locate_token(dataset: Path, position: int, tokenizer: Path | None) -> Located:
    """The document of the token at `position` in the whole dataset, from 0, and the tokens around it.

    `tokenizer`: a folder or file; None: the folder `tokenizer` beside the dataset. Reads one row group of the document index and
    one of the dataset. Raises ValidationError if dataset or index cannot be read, TokenizerError for a tokenizer
    that is missing or another, and ParamsError.
    """
    if position < 0:
        raise ParamsError("--token", f"found {position}; allowed: 0 or more.")
    wanted = f"token {position:,}"
    with _index(dataset) as index:
        manifest = read_manifest(dataset)
        n_tokens = manifest.n_tokens
        group = _last_group(index, position) if position < n_tokens else None
        if group is None:
            there = f"has the tokens 0 to {n_tokens - 1:,}" if n_tokens else "has no tokens"
            return Located(dataset, wanted, 0, [], None, f"{wanted} is not in {dataset}, which {there}.")
        rows = index.read_row_group(group)
        i = pc.sum(pc.less_equal(rows["first_token"], position)).as_py() - 1
        document = _document(rows, i, _row_in_file(index, group, rows, i))
    for shard in manifest.shards:
        if shard.name == document.file:
            check_counts(dataset / shard.name, shard.n_documents, shard.n_tokens)
    loaded = own_tokenizer(dataset, tokenizer, manifest.tokenizer_digest)
    return Located(dataset, wanted, 1, [document], _token(dataset, document, position, loaded), "")


def locate_id(dataset: Path, id: str) -> Located:
    """The documents with an id; where ids are rows, those of every input file. Raises ValidationError, and
    ParamsError for an id that is not UTF-8."""
    if id != id.encode(errors="ignore").decode():
        raise ParamsError(
            "--id", f"found {id!r}; allowed: a text that is valid UTF-8.", "Give the id as the documents have it."
        )
    with _index(dataset) as index:
        is_row = pa.types.is_integer(index.schema_arrow.field("id").type)
        value = (int(id) if id.isdecimal() and len(id) < 19 else -1) if is_row else id
        rows = "; its ids are rows, from 0" if is_row else ""
        asked = f"the id {id!r}"
        return _located(dataset, index, "id", lambda ids: pc.equal(ids, value), asked, rows)


def locate_digest(dataset: Path, digest: str) -> Located:
    """The documents whose text has a sha256 that begins with these hexadecimal digits, at least 8. Raises ValidationError, and
    ParamsError for other digits."""
    wanted = digest.lower()
    if len(wanted) not in _DIGITS or set(wanted) - set("0123456789abcdef"):
        raise ParamsError(
            "--digest", f"found {digest!r}; allowed: 8 to 64 hexadecimal digits, the beginning of a sha256."
        )

    def matches(digests: pa.ChunkedArray) -> pa.ChunkedArray:
        is_match = pc.starts_with(digests.cast(pa.binary()), pattern=bytes.fromhex(wanted[: len(wanted) // 2 * 2]))
        if len(wanted) % 2:  # half a byte is left
            longer = [
                is_near and sha256.as_py().hex().startswith(wanted)
                for is_near, sha256 in zip(is_match.to_pylist(), digests, strict=True)
            ]
            is_match = pa.chunked_array([pa.array(longer, pa.bool_())])
        return is_match

    with _index(dataset) as index:
        return _located(dataset, index, "sha256", matches, f"a text with the digest {wanted}", "")


def _located(
    dataset: Path,
    index: pq.ParquetFile,
    column: str,
    matches: Callable[[pa.ChunkedArray], pa.ChunkedArray],
    asked: str,
    hint: str,
) -> Located:
    """The documents whose value in the column matches. Row groups are read one by one."""
    documents: list[LocatedDocument] = []
    n_found = n_rows = start = 0
    last = ""
    for group in range(index.num_row_groups):
        table = index.read_row_group(group, columns=[column, "file"])
        first_of = dict(_first_rows(table["file"]))
        matching_rows = pc.indices_nonzero(matches(table[column])).to_pylist()
        n_found += len(matching_rows)
        if shown := matching_rows[: N_LISTED_MAX - len(documents)]:
            rows = index.read_row_group(group)
            for i in shown:
                file = rows["file"][i].as_py()
                begin = start if file == last else n_rows + first_of[file]
                documents.append(_document(rows, i, n_rows + i - begin))
        if len(table):
            name = table["file"][-1].as_py()
            if name != last:
                last, start = name, n_rows + first_of[name]
        n_rows += len(table)
    return Located(dataset, asked, n_found, documents, None, f"no document of {dataset} has {asked}{hint}.")


def _first_rows(files: pa.ChunkedArray) -> Iterator[tuple[str, int]]:
    """Each name of a file with the first row that has it."""
    coded = files.combine_chunks().dictionary_encode()
    codes, first = np.unique(coded.indices.to_numpy(zero_copy_only=False), return_index=True)
    for code, row in zip(codes, first, strict=True):
        yield coded.dictionary[int(code)].as_py(), int(row)


def _last_group(index: pq.ParquetFile, position: int) -> int | None:
    """The row group with the last document that begins at `position` or before. No other holds that token."""
    column = index.schema_arrow.get_field_index("first_token")
    groups = [index.metadata.row_group(i).column(column).statistics for i in range(index.num_row_groups)]
    return max((i for i, one in enumerate(groups) if one is None or one.min <= position), default=None)


def _row_in_file(index: pq.ParquetFile, group: int, rows: pa.Table, i: int) -> int:
    """The row in its file of the dataset of the document that is row i of this row group."""
    file = rows["file"][i].as_py()
    row: int = i - dict(_first_rows(rows["file"]))[file]
    while row == i and group:  # the file began in a row group before, unless this is its first row
        group -= 1
        earlier = index.read_row_group(group, columns=["file"])["file"]
        n = pc.sum(pc.equal(earlier, file)).as_py() or 0
        row, i = row + n, i + len(earlier)
    return row


def _document(rows: pa.Table, i: int, row_in_file: int) -> LocatedDocument:
    [found] = rows.slice(i, 1).to_pylist()
    known = {field.name for field in fields(LocatedDocument)}
    found = {name: value for name, value in found.items() if name in known}
    return LocatedDocument(**found | {"row_in_file": row_in_file, "sha256": found["sha256"].hex()})


def _token(dataset: Path, document: LocatedDocument, position: int, tokenizer: Tokenizer) -> LocatedToken:
    ids, mask = _ids_of(dataset / document.file, document.row_in_file)
    position_in_document = position - document.first_token
    if len(ids) != document.n_tokens or position_in_document >= len(ids):
        raise ValidationError(
            f"{document.file}: row {document.row_in_file}",
            f"holds {len(ids):,} tokens; the document index says {document.n_tokens:,}.",
            "`tokenmill verify` says what is wrong.",
        )

    def decoded(ids: list[int]) -> bytes:
        try:
            return tokenizer.decode_bytes(ids)
        except TokenizerError as error:
            raise ValidationError(*error.inside(f"{document.file}: row {document.row_in_file}")) from None

    def text(ids: list[int]) -> str:
        return decoded(ids).decode(errors="replace")

    return LocatedToken(
        position=position,
        position_in_document=position_in_document,
        trained=None if mask is None else bool(mask[position_in_document]),
        begins=position_in_document == 0,
        ends=position_in_document == len(ids) - 1,
        id=ids[position_in_document],
        bytes=decoded([ids[position_in_document]]).hex(),
        before=text(ids[max(0, position_in_document - _N_AROUND) : position_in_document]),
        text=text([ids[position_in_document]]),
        after=text(ids[position_in_document + 1 : position_in_document + 1 + _N_AROUND]),
    )


def _ids_of(path: Path, row: int) -> tuple[list[int], list[int] | None]:
    """The ids in a row of a file of the dataset, and the loss mask where it has one; no ids if there is no such row."""
    with reading(path), parquet_file(path) as file:
        for group in range(file.num_row_groups):
            n_rows = file.metadata.row_group(group).num_rows
            if row < n_rows:
                has_mask = "loss_mask" in file.schema_arrow.names
                table = file.read_row_group(group, columns=["input_ids", *["loss_mask"] * has_mask])
                return table["input_ids"][row].as_py(), table["loss_mask"][row].as_py() if has_mask else None
            row -= n_rows
    return [], None


@contextmanager
def _index(dataset: Path) -> Iterator[pq.ParquetFile]:
    check_is_dataset(dataset)
    path = beside(dataset, TABLES_DIRECTORY) / DOCUMENTS_FILE
    if not path.exists():
        raise ValidationError(
            path,
            "expected the dataset's document index; nothing is there.",
            "Copy the folder tables beside the dataset, or make it with `tokenmill build`.",
        )
    with reading(path), parquet_file(path) as index:
        yield index


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Names the file in errors of pyarrow in the block."""
    try:
        yield
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ValidationError(path, f"cannot be read: {error}.", "`tokenmill verify` says what is wrong.") from None


def lines_of(located: Located) -> Iterator[str]:
    """The result as lines for a terminal."""
    if not located.documents:
        yield located.why_none
        return
    if located.token is not None:
        yield from _lines_of_token(located.token, located.documents[0])
        return
    yield f"{located.dataset}: {located.asked}: {number_of(located.n_found, 'document')}"
    for document in located.documents:
        yield (
            f"  {document.id}: {document.file}, row {document.row_in_file:,}: {number_of(document.n_tokens, 'token')} "
            f"from token {document.first_token:,} on; from {document.shard}, row {document.row:,}"
            + ("" if document.n_messages is None else f", {number_of(document.n_messages, 'message')}")
        )
    if more := located.n_found - len(located.documents):
        yield f"  and {more:,} more"


def _lines_of_token(token: LocatedToken, document: LocatedDocument) -> Iterator[str]:
    at = [word for word, is_so in (("begins", token.begins), ("ends", token.ends)) if is_so]
    yield f"token {token.position:,}" + (f" {' and '.join(at)} its document" if at else "")
    lines = {
        "document": document.id,
        "source": f"{document.shard}, row {document.row:,}",
        **({} if document.n_messages is None else {"messages": f"{document.n_messages:,}"}),
        "file": f"{document.file}, row {document.row_in_file:,}",
        "position": f"{token.position_in_document:,} of the document's {number_of(document.n_tokens, 'token')}, from 0",
        "id": f"{token.id}, bytes {bytes.fromhex(token.bytes)!r}",
        "before": repr(token.before),
        "token": repr(token.text),
        "after": repr(token.after),
        **({} if token.trained is None else {"trained": "yes" if token.trained else "no"}),
    }
    for name, words in lines.items():
        yield f"  {name:<9} {words}"
