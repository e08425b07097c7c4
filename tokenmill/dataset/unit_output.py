"""An encoded unit: its facts in the unit store, its entry in the manifest, and its recovery from a dataset."""

from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from tokenmill.chat.answers import AnswerCounts
from tokenmill.console import say
from tokenmill.corpus.bad_documents import BadDocument
from tokenmill.corpus.dropped import DROPPED_FILE, Dropped, UnitDropped, none_dropped, read_dropped
from tokenmill.corpus.quarantine import QUARANTINE_FILE, LeftOut, left_out, read_quarantine, write_left
from tokenmill.corpus.units import Unit
from tokenmill.dataset.document_index import read_index, unit_of_index
from tokenmill.dataset.entries import InputRows, OutputShard
from tokenmill.dataset.kept_columns import kept_again
from tokenmill.dataset.manifest import Manifest, read_manifest_file
from tokenmill.dataset.tables import DOCUMENTS_FILE, UNIT_COUNTS_FILE, UNIT_INDEX_FILE
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.errors import ValidationError
from tokenmill.formats.parquet import read_tokens
from tokenmill.layout import QUARANTINE_DIRECTORY, TABLES_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.rounds import Facts
from tokenmill.storage.atomic import md5_file
from tokenmill.storage.links import link
from tokenmill.storage.unit_store import Done, UnitStore
from tokenmill_reader.manifest import DOCUMENTS_FOLDER, MANIFEST_FILE
from tokenmill_reader.regular_files import sha256_file
from tokenmill_reader.shown import size

TOKENS_FILE = "tokens.parquet"  # in a unit's folder


class EncodeFacts(Facts, frozen=True):
    """The facts of a unit's file. `piece_documents`, `piece_bad`, `piece_dropped`: numbers of documents per piece. `reasons`: the
    number of dropped documents by reason. `left`: its quarantine. `tokens_sha256`: the TokensDigest of its documents. `n_trained`,
    `answers`: trained tokens and counts of answers; None for texts. `piece_samples`: numbers of samples per piece; None if each
    document is a row."""

    piece_documents: list[int]
    piece_bad: list[int | None]
    piece_dropped: list[int]
    reasons: dict[str, int]
    left: LeftOut
    n_tokens: int
    text_bytes: int
    tokens_sha256: str
    n_trained: int | None = None
    answers: AnswerCounts | None = None
    piece_samples: list[int] | None = None

    @property
    def piece_rows(self) -> list[int]:
        """The number of rows of the file per piece."""
        return self.piece_documents if self.piece_samples is None else self.piece_samples

    @property
    def n_left_out(self) -> int:
        """The number of documents and pieces in the quarantine."""
        return self.left.n

    def __str__(self) -> str:
        trained = "" if self.n_trained is None else f", {self.n_trained:,} of them trained"
        documents = f"{sum(self.piece_documents):,} documents"
        if self.piece_samples is not None:
            documents = f"{sum(self.piece_samples):,} samples of {documents}"
        return f"{documents}, {size(self.text_bytes)} of text, {self.n_tokens:,} tokens{trained}"


def output_shard(unit: Unit, key: str, done: Done[EncodeFacts]) -> OutputShard:
    """The manifest's entry of a finished unit. `key`: its key in the unit store."""
    facts, file = done.facts, done.files[TOKENS_FILE]
    return OutputShard(
        name=f"{DOCUMENTS_FOLDER}/{unit.output}",
        unit=key,
        n_bytes=file.n_bytes,
        sha256=file.sha256,
        n_documents=sum(facts.piece_rows),
        n_tokens=facts.n_tokens,
        text_bytes=facts.text_bytes,
        n_trained=facts.n_trained,
        answers=facts.answers,
        tokens_sha256=facts.tokens_sha256,
        rows=[
            InputRows(
                name=piece.shard.name,
                first_row=piece.first_row,
                first_line=piece.first_line,
                n_documents=n_documents,
                n_bad=n_bad,
                n_dropped=n_dropped,
                n_samples=n_rows if facts.piece_samples is not None else None,
            )
            for piece, n_documents, n_bad, n_dropped, n_rows in zip(
                unit.pieces, facts.piece_documents, facts.piece_bad, facts.piece_dropped, facts.piece_rows, strict=True
            )
        ],
    )


def take_over(store: UnitStore, keys: Mapping[str, Sequence[str]], files: Mapping[str, Path], workers: int) -> int:
    """Copies units from an earlier dataset into the unit store. `keys`: the units to look for, with the columns that each keeps in
    the document index. Returns how many were copied.

    `files`: the paths in DVC's cache of the files of the dataset, its tables and its quarantine, by their names relative to the
    project's folder. Each file is checked against the manifest. A file that does not match its own name in DVC's cache either is
    deleted, because DVC would check it out in place of the right one. Units with a damaged shard are not taken.
    """
    try:
        manifest = read_manifest_file(files[f"{TOKENS_DIRECTORY}/{MANIFEST_FILE}"])
    except (KeyError, ValidationError):  # there is no manifest, or one of an older format
        return 0
    left = _left_of(manifest, files.get(f"{QUARANTINE_DIRECTORY}/{QUARANTINE_FILE}"))
    dropped = _dropped_of(manifest, files.get(f"{TABLES_DIRECTORY}/{DROPPED_FILE}"))
    wanted = {shard.unit: shard for shard in manifest.shards if shard.unit in keys}  # equal shards are one unit
    index = _index_of(
        manifest, files.get(f"{TABLES_DIRECTORY}/{DOCUMENTS_FILE}"), {shard.name for shard in wanted.values()}
    )

    def take(shard: OutputShard) -> bool:
        left_of_unit = _of_unit(shard, left)
        has_dropped = any(rows.n_dropped for rows in shard.rows)
        is_dropped_known = dropped is not None and all(rows.n_bad is not None for rows in shard.rows)
        path = files.get(f"{TOKENS_DIRECTORY}/{shard.name}")
        digest = shard.tokens_sha256
        if (
            index is None
            or left_of_unit is None
            or (has_dropped and not is_dropped_known)
            or path is None
            or digest is None
        ):
            return False
        names, rows = keys[shard.unit], index[shard.name]
        kept = kept_again(rows, names) if names else None
        if (names and kept is None) or not _is_whole(path, shard.sha256):
            return False
        with store.new(shard.unit) as partial:
            reasons = _write_dropped(shard, dropped or none_dropped(), partial)
            link(path, partial / TOKENS_FILE)
            _count(path, manifest.id_max, partial / UNIT_COUNTS_FILE)
            unit_of_index(rows, partial / UNIT_INDEX_FILE, shard.pieces, kept)
            write_left(left_of_unit, partial)
            facts = _facts_of(shard, digest, reasons, left_out(left_of_unit))
            store.keep(shard.unit, partial, facts)
        return True

    with ThreadPoolExecutor(workers, thread_name_prefix="take over") as pool:
        n_taken = sum(pool.map(take, wanted.values()))
    store.flush()
    return n_taken


def _facts_of(shard: OutputShard, tokens_sha256: str, reasons: dict[str, int], left: LeftOut) -> EncodeFacts:
    return EncodeFacts(
        piece_documents=[rows.n_documents for rows in shard.rows],
        piece_bad=[rows.n_bad for rows in shard.rows],
        piece_dropped=[rows.n_dropped for rows in shard.rows],
        reasons=reasons,
        left=left,
        n_tokens=shard.n_tokens,
        text_bytes=shard.text_bytes,
        tokens_sha256=tokens_sha256,
        n_trained=shard.n_trained,
        answers=shard.answers,
        piece_samples=_samples_of(shard),
    )


def _samples_of(shard: OutputShard) -> list[int] | None:
    return [rows.n_rows for rows in shard.rows] if any(rows.n_samples is not None for rows in shard.rows) else None


def _is_whole(path: Path, sha256: str) -> bool:
    try:
        if sha256_file(path) == sha256:
            return True
        if md5_file(path) == path.parent.name + path.name:
            return False  # the file is intact, but the manifest belongs to another one
        path.unlink()
    except FileNotFoundError:
        return False
    say(
        f"{path}: the bytes of this file in DVC's cache did not match its name. The file is removed, and made again "
        "when it is needed"
    )
    return False


def _index_of(manifest: Manifest, path: Path | None, files: Set[str]) -> dict[str, pa.Table] | None:
    """The rows of each file in the dataset's document index; None if the index is missing or incomplete."""
    if not files or path is None or not _is_whole_table(manifest, DOCUMENTS_FILE, path):
        return None
    index, n_rows, rows_of = read_index(path, [("file", "in", files)]), 0, {}
    for shard in manifest.shards:  # in the order of the index; to filter it for each file would take quadratic time
        if shard.name in files:
            rows_of[shard.name] = index.slice(n_rows, shard.n_documents)
            n_rows += shard.n_documents
    return rows_of


def _is_whole_table(manifest: Manifest, name: str, path: Path) -> bool:
    sha256 = next((table.sha256 for table in manifest.tables if table.name == name), None)
    return sha256 is not None and _is_whole(path, sha256)


def _count(tokens: Path, id_max: int, path: Path) -> None:
    counts = TokenCounts(id_max)
    for batch in read_tokens(tokens):
        counts.add(batch["input_ids"].flatten())
    counts.write(path)


def _left_of(manifest: Manifest, quarantine: Path | None) -> dict[str, list[BadDocument]] | None:
    """The quarantined documents by the name of their shard; None if that is unknown."""
    if manifest.n_bad == 0:
        return {}
    if quarantine is None or not _is_whole(quarantine, manifest.quarantine_sha256):
        return None
    return read_quarantine(quarantine)


def _of_unit(shard: OutputShard, left: Mapping[str, Sequence[BadDocument]] | None) -> list[BadDocument] | None:
    """The quarantined documents of a unit, relative to its pieces; None if that is unknown."""
    if all(rows.n_bad == 0 for rows in shard.rows):
        return []
    if left is None or any(rows.n_bad is None for rows in shard.rows):
        return None
    return [
        one.moved(-rows.first_row, -rows.first_line, i)
        for i, rows in enumerate(shard.rows)
        for one in left.get(rows.name, ())
        if one.row is not None and rows.first_row <= one.row < (rows.next_row or 0)
    ]


def _dropped_of(manifest: Manifest, path: Path | None) -> Dropped | None:
    """The dropped documents; None if they are unknown."""
    if not manifest.n_dropped:
        return none_dropped()
    if path is None or not _is_whole_table(manifest, DROPPED_FILE, path):
        return None
    return read_dropped(path)


def _write_dropped(shard: OutputShard, dropped: Dropped, folder: Path) -> dict[str, int]:
    """Writes the dropped documents of a unit into its folder, and gives their number by reason."""
    with closing(UnitDropped(len(shard.rows), folder)) as of_unit:
        for i, rows in enumerate(shard.rows):
            of_unit.add_known(i, rows.first_row, dropped.of(rows.name, rows.first_row, rows.next_row))
    return dict(sorted(of_unit.reasons.items()))
