"""Draws samples of documents and tokens of bounded size by keyed hashes."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config.sources import Column
from tokenmill.corpus.bad_documents import ColumnError
from tokenmill.corpus.dropped import Dropped
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.makers import maker_of
from tokenmill.corpus.reader import read_batches
from tokenmill.corpus.units import Piece, Unit, source_name
from tokenmill.errors import CorpusError, DamagedError, ParamsError
from tokenmill.report.bigram import SampleIds
from tokenmill_reader.checked_parquet import parquet_file

SEED = 1
TEXT_BYTES_MAX = 2 << 20
PIECES_MAX = 16  # files per source
SOURCES_MAX = 64
N_IDS_MAX = 2_000_000
ROOT_SOURCE = "(root)"  # the source of files outside of any folder

_FILES_MAX = 32
_GROUP_BYTES_MAX = 64 << 20
_PIECE_BYTES_MIN = 16 << 10
_LANGUAGES_MAX = 1 << 18  # characters of the different languages


@dataclass(frozen=True)
class DocumentSample:
    """Documents of the corpus.

    `texts`: large_string, without nulls, each cut to as many characters as its file may give bytes. `sources`, `languages`: string,
    for each document; languages are null without a column. `n_files`: the number of files read.
    """

    texts: pa.LargeStringArray
    sources: pa.StringArray
    languages: pa.StringArray
    n_files: int

    @property
    def n_bytes(self) -> int:
        """The bytes of text in UTF-8."""
        return _n_bytes(self.texts)


@dataclass(frozen=True)
class TokenSample:
    """Documents of the dataset: their concatenated tokens, and each document's number of tokens, bytes of text and keyed hash."""

    ids: SampleIds
    lengths: npt.NDArray[np.int64]
    n_bytes: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]


def keyed(name: str) -> int:
    """A keyed 64-bit hash of a name."""
    return int.from_bytes(
        hashlib.blake2b(name.encode(), digest_size=8, key=SEED.to_bytes(8, "little")).digest(), "little"
    )


def draw_documents(
    units: Sequence[Unit],
    language_column: str | None,
    limits: Limits,
    dropped: Dropped,
) -> DocumentSample:
    """Reads the first documents of up to 16 files or parts of files per source: about 2 MiB in all, but at least 16 KiB per file
    (16 MiB with 64 sources). What small files leave of their source's share goes to its larger ones.

    A keyed hash of names chooses files, so a new file changes the sample little. Leaves out bad documents, damaged files, documents
    that lack a language in `language_column`, and those in `dropped`. Raises ParamsError if no file has
    `language_column` or its values are no short names, and CorpusError for a file that cannot be read.
    """
    drawn = _pieces(units)
    texts: list[pa.LargeStringArray] = []
    sources: list[str] = []
    languages: list[pa.Array] = []
    refused: list[str] = []
    named: set[str] = set()
    for name, pieces in drawn.items():
        left_bytes = TEXT_BYTES_MAX // len(drawn)
        for i, piece in enumerate(pieces):
            piece_bytes = max(left_bytes // (len(pieces) - i), _PIECE_BYTES_MIN)
            has_columns = piece.shard.kind.has_columns
            column = language_column if has_columns else None
            if column in _read_columns(piece):
                refused.append(f"{piece.shard.name}: {column!r} is the column of the documents")
                continue
            try:
                rows = dropped.rows_of(piece.shard.name)
                for text, language in _beginning(piece, column, piece_bytes, limits, refused, rows):
                    left_bytes -= _n_bytes(text)
                    texts.append(text)
                    languages.append(
                        pa.nulls(len(text), pa.string()) if language is None else language.cast(pa.string())
                    )
                    named.update(pc.unique(languages[-1]).drop_null().to_pylist())
                    sources += [name] * len(text)
            except DamagedError:
                continue
            except CorpusError as error:
                if not isinstance(error, ColumnError) and error.code != "TM206":  # TM206: values too large to read
                    raise
                refused.append(str(error))
        if (n_characters := sum(map(len, named))) > _LANGUAGES_MAX:  # the report has each several times
            raise ParamsError(
                "validate.language_column",
                f"{language_column!r} has values of {n_characters:,} characters in all; expected a few short names, such as en.",
                "Name the column or key that holds a document's language, or set it to null.",
            )
    found_language = pa.chunked_array(languages, pa.string()).combine_chunks()
    if language_column is not None and (texts or refused) and found_language.null_count == len(found_language):
        raise ParamsError(
            "validate.language_column",
            f"{language_column!r} was found in no file of the sample{(f' ({refused[0]})' if refused else '')}.",
            "Name the column or key that holds a document's language, or set it to null.",
        )
    return DocumentSample(
        pa.chunked_array(texts, pa.large_string()).combine_chunks(),
        pa.array(sources, pa.string()),
        found_language,
        sum(map(len, drawn.values())),
    )


def _pieces(units: Sequence[Unit]) -> dict[str, list[Piece]]:
    """Draws the pieces of each source, the smallest first."""
    by_source: dict[str, list[tuple[int, Piece]]] = {}
    for unit in units:
        for piece in unit.pieces:
            if piece.damage is None:
                key = keyed(f"{piece.shard.name}:{piece.first_row}")
                by_source.setdefault(source_name(piece.shard) or ROOT_SOURCE, []).append((key, piece))
    names = sorted(sorted(by_source, key=keyed)[:SOURCES_MAX])
    drawn = {name: [piece for _, piece in sorted(by_source[name], key=itemgetter(0))[:PIECES_MAX]] for name in names}
    return {name: sorted(pieces, key=attrgetter("n_bytes")) for name, pieces in drawn.items()}


def _read_columns(piece: Piece) -> set[str | None]:
    """The names of a file's columns that hold its documents."""
    source = piece.shard.source
    assert source is not None
    conversations = source.reading.conversations
    if conversations is None:
        return {source.reading.text_column}
    return set() if conversations.template else {column.name for column in maker_of(conversations).columns}


def _beginning(
    piece: Piece,
    language_column: str | None,
    n_bytes: int,
    limits: Limits,
    refused: list[str],
    dropped: npt.NDArray[np.int64],
) -> Iterator[tuple[pa.LargeStringArray, pa.Array | None]]:
    """The texts and languages of a piece's first documents, `n_bytes` together or the first one. Adds to `refused` why documents
    were left out."""
    source = piece.shard.source
    assert source is not None
    columns = [] if language_column is None else [Column(language_column, "validate.language_column")]
    read = read_batches(
        piece.shard,
        replace(source.reading, id_column=None, columns=tuple(columns)),
        piece.part,
        on_bad=lambda bad: refused.append(f"{piece.shard.name}: {bad.reason}"),
        limits=replace(limits, batch_bytes=n_bytes),
        leave_out=lambda batch: (
            dropped[slice(*np.searchsorted(dropped, [batch.first_row, batch.first_row + len(batch.texts)]))]
            - batch.first_row
        ),
    )
    with closing(read):  # type: ignore[type-var]
        for batch in read:
            texts = pc.utf8_slice_codeunits(batch.texts, 0, n_bytes)
            sizes = pc.binary_length(texts).to_numpy().astype(np.int64)
            languages = None if language_column is None else batch.columns[columns[0]]
            if languages is not None:
                sizes += pc.binary_length(languages).to_numpy()
            ends = np.cumsum(sizes)
            n_documents = max(int(np.searchsorted(ends, n_bytes, side="right")), 1)
            yield texts.slice(0, n_documents), None if languages is None else languages.slice(0, n_documents)
            n_bytes -= int(ends[-1]) if len(ends) else 0
            if n_bytes <= 0 or n_documents < len(texts):
                return


def _n_bytes(texts: pa.LargeStringArray) -> int:
    return int(pc.sum(pc.binary_length(texts)).as_py() or 0)


def draw_tokens(directory: Path, names: Sequence[str]) -> TokenSample:
    """Reads up to about 2 million tokens from up to 32 files of a dataset, in whole row groups chosen by a keyed hash.

    `names`: the dataset's files, relative to `directory`. Each document is hashed by file and row, so a new file does not change
    which documents are held out.
    """
    ids: list[npt.NDArray[np.uint32]] = []
    lengths: list[npt.NDArray[np.int64]] = []
    n_bytes: list[npt.NDArray[np.int64]] = []
    keys: list[npt.NDArray[np.uint64]] = []
    files = sorted(names, key=keyed)[:_FILES_MAX]
    for i, name in enumerate(files):
        left = (N_IDS_MAX - sum(map(len, ids))) // (len(files) - i)
        with parquet_file(directory / name) as file:
            metadata = file.metadata
            starts = np.cumsum([0, *(metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))])
            for group in sorted(range(metadata.num_row_groups), key=lambda k: keyed(f"{name}:{k}")):
                if left <= 0 or metadata.row_group(group).total_byte_size > _GROUP_BYTES_MAX:
                    continue
                table = file.read_row_group(group, columns=["input_ids", "n_bytes"])
                lists = table["input_ids"].combine_chunks()
                rows = np.arange(starts[group], starts[group] + table.num_rows, dtype=np.uint64)
                ids.append(lists.flatten().to_numpy().astype(np.uint32))
                lengths.append(pc.list_value_length(lists).to_numpy().astype(np.int64))
                n_bytes.append(table["n_bytes"].to_numpy())
                keys.append(row_keys(name, rows))
                left -= len(ids[-1])
    return TokenSample(
        np.concatenate([np.empty(0, np.uint32), *ids]),
        np.concatenate([np.empty(0, np.int64), *lengths]),
        np.concatenate([np.empty(0, np.int64), *n_bytes]),
        np.concatenate([np.empty(0, np.uint64), *keys]),
    )


def row_keys(name: str, rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A keyed hash of each row of a file: the last step of splitmix64 (Steele, Lea and Flood 2014)."""
    numbers = rows ^ np.uint64(keyed(name))
    with np.errstate(over="ignore"):
        mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
