"""Checks one file of a token dataset against its documents, and derives its part of the tables again."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.artifacts.golden import Encode, sample_engines
from tokenmill.chat.answers import AnswerCounts, added
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.library_memory import check_encoding
from tokenmill.chat.rendering import ChatSettings
from tokenmill.checks.chat_checks import samples_in
from tokenmill.checks.findings import FORCE, Finding, WrongRowError, of_error
from tokenmill.checks.row_checks import Judge, check_sample, check_span
from tokenmill.checks.spans import aligned
from tokenmill.checks.subject import Subject
from tokenmill.config.source_params import Source
from tokenmill.console import Advance
from tokenmill.corpus.filter import Filters, leaving_out
from tokenmill.corpus.good_documents import GoodDocuments
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.quarantine import piece_bad
from tokenmill.corpus.reader import Batch, read_batches
from tokenmill.corpus.units import Unit
from tokenmill.dataset.document_index import read_index, trained, unit_index
from tokenmill.dataset.entries import OutputShard
from tokenmill.dataset.group_keys import Groups, group_column, groups_known, groups_read
from tokenmill.dataset.kept_columns import kept_of
from tokenmill.dataset.tables import DOCUMENTS_FILE, UNIT_COUNTS_FILE, UNIT_INDEX_FILE
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.dataset.tokens_digest import TokensDigest
from tokenmill.errors import DamagedError, TokenizerError, ValidationError
from tokenmill.formats.parquet import read_tokens
from tokenmill.formats.tokens import id_type, schema
from tokenmill.quantities import number_of
from tokenmill.rounds import Facts, Task
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.formats.parquet import check_counts
from tokenmill_reader.manifest import MANIFEST_FILE
from tokenmill_reader.shown import size

_END = 2**31 - 1
"""The end of a slice. pyarrow 26 fails without one, for some numbers of values."""


class FileFacts(Facts, frozen=True):
    """The sums of a correct file. `n_sampled`: documents compared with other engines. `tokens_sha256`: the TokensDigest of its
    documents. `n_trained`: trained tokens; None for texts. `answers`: counts of answers, and
    `piece_documents`: conversations per piece; None unless conversations were encoded again."""

    n_documents: int
    n_tokens: int
    text_bytes: int
    n_sampled: int
    piece_bad: list[int | None]
    piece_dropped: list[int]
    tokens_sha256: str
    n_trained: int | None = None
    answers: AnswerCounts | None = None
    piece_documents: list[int] | None = None

    @property
    def n_left_out(self) -> int:
        """The number of documents and pieces in the quarantine."""
        return sum(1 if n_bad is None else n_bad for n_bad in self.piece_bad)

    def __str__(self) -> str:
        words = f"{number_of(self.n_documents, 'document')}, {size(self.text_bytes)} of text"
        return f"right: {words}, {number_of(self.n_tokens, 'token')}"


@dataclass(frozen=True)
class DocumentRules:
    """How documents are read: `source` says what happens to bad ones, `filters` which ones are left out."""

    source: Source
    limits: Limits
    filters: Filters


@dataclass(frozen=True)
class FileCheck:
    """A file of documents' tokens that is to be checked.

    `entry`: its entry in the manifest. `tokens`: the file. `unit`: the documents that it must hold, but for dropped ones. None:
    only what the tokens say can be checked, the digests of conversations are those in the file, and the index says 0 for the
    number of their messages. `judge`: what rows are checked against. `sample`: the rows that other engines encode, too.
    `group_column`: see Files.split_group. `tables`: the folder of the dataset's tables, which know the documents' groups.
    """

    entry: OutputShard
    tokens: Path
    unit: Unit | None
    rules: DocumentRules
    judge: Judge
    sample: Set[int]
    group_column: str | None
    tables: Path | None


def check_file(file: FileCheck, advance: Advance, folder: Path) -> FileFacts:
    """Checks a file of the dataset, and gives its sums. Derives its document index, token counts and dropped documents again, and
    writes them to `folder`, which is empty.

    Raises ValidationError for the first thing that is wrong, which is a WrongRowError where a row is, and CorpusError.
    """
    entry, tokens, judge = file.entry, file.tokens, file.judge
    if judge.chat is not None:
        judge.chat.hold_to(file.rules.limits)
    documents = None if file.unit is None else _documents_of(file, file.unit, advance, folder)
    has_names, has_mask = _check_schema(entry, tokens, judge)
    shards = [rows.name for rows in entry.rows]
    piece_documents = np.zeros(len(shards), np.int64)
    if documents is None:
        expected = _decoded(entry, tokens, judge)
    elif judge.chat is None:
        expected = iter(documents)
    else:
        expected = samples_in(_counted(documents, piece_documents), shards, judge.chat)
    counts, digest = TokenCounts(judge.tokenizer.id_max), TokensDigest()
    n_documents = n_tokens = text_bytes = n_sampled = n_trained = 0
    answers: list[AnswerCounts] = []
    first_rows = [first_row for _, first_row in entry.pieces]
    kept = None if file.unit is None else kept_of(file.unit)
    with unit_index(folder / UNIT_INDEX_FILE, first_rows, has_names, _groups(file), has_mask, kept) as add_to_index:
        for span in aligned(expected, shards, read_tokens(tokens), [*file.rules.filters]):
            if judge.has_source:
                check_encoding(judge.tokenizer, judge.chat, span.documents, file.rules.limits, span.place)
            checked = check_span(span, judge)
            n_sampled += check_sample(span, judge, file.sample)
            counts.add_counted(checked.counts)
            if checked.answers is not None:
                answers.append(checked.answers)
            add_to_index(span.documents, span.tokens)
            digest.add(span.tokens)
            n_documents += span.tokens.num_rows
            n_span_tokens = int(checked.counts.sum())
            n_tokens += n_span_tokens
            text_bytes += pc.sum(span.tokens["n_bytes"]).as_py()
            if has_mask:
                n_trained += pc.sum(trained(span.tokens["loss_mask"])[0]).as_py()
            advance(0, n_span_tokens)
            del span, checked  # before the next rows are read
    counts.write(folder / UNIT_COUNTS_FILE)
    known = [rows.n_bad for rows in entry.rows]
    bad = known if documents is None else piece_bad(documents.unit, documents.left)
    dropped = [rows.n_dropped for rows in entry.rows] if documents is None else documents.dropped.n_by_piece
    facts = FileFacts(
        n_documents,
        n_tokens,
        text_bytes,
        n_sampled,
        bad,
        dropped,
        digest.hex(),
        n_trained if has_mask else None,
        added(answers) if answers else None,
        piece_documents.tolist() if answers else None,
    )
    check_sums(entry, facts)
    return facts


def check_sums(entry: OutputShard, facts: FileFacts) -> None:
    """Checks the sums of a file that the manifest states. Raises ValidationError."""
    for name, says, found in _sums(entry, facts):
        if found != says:
            raise ValidationError(f"{MANIFEST_FILE}: {entry.name}: {name}", f"it says {says}; found {found}.", FORCE)


def _sums(entry: OutputShard, facts: FileFacts) -> Iterator[tuple[str, Any, Any]]:
    """Each sum by its name: what the manifest says, and what was found. Left out is what one of them does not know."""
    for name in ("n_documents", "n_tokens", "text_bytes", "n_trained"):
        yield name, getattr(entry, name), getattr(facts, name)
    yield "n_bad of its rows", [rows.n_bad for rows in entry.rows], facts.piece_bad
    yield "n_dropped of its rows", [rows.n_dropped for rows in entry.rows], facts.piece_dropped
    if facts.piece_documents is not None:
        yield "n_documents of its rows", [rows.n_documents for rows in entry.rows], facts.piece_documents
    if entry.tokens_sha256 is not None:
        yield "tokens_sha256", entry.tokens_sha256, facts.tokens_sha256
    if None not in (facts.answers, entry.answers):
        yield "answers", entry.answers, facts.answers


def _counted(documents: Iterable[Batch], piece_documents: npt.NDArray[np.int64]) -> Iterator[Batch]:
    """Yields the batches, and adds the numbers of their documents to those of each piece."""
    for batch in documents:
        piece_documents += batch.n_by_piece(len(piece_documents))
        yield batch


class FileTask(Task[FileFacts], frozen=True, kw_only=True):
    """Checks a file of the dataset against its documents."""

    file: FileCheck

    def run(self, folder: Path, advance: Advance) -> FileFacts:
        """Writes what `check_file` derives again (see Task). `unit` counts: pieces that turned out damaged are marked there."""
        return check_file(replace(self.file, unit=self.unit), advance, folder)


def facts_and_findings(file: FileCheck, advance: Advance, folder: Path) -> tuple[FileFacts | None, list[Finding]]:
    """What `check_file` gives, or None with a finding for the error that it raises. Raises OSError if the machine fails, such as
    for a full disk, because this says nothing of the file."""
    try:
        return check_file(file, advance, folder), []
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 — a damaged file makes pyarrow raise errors of many kinds
        return None, [of_error(file.entry.name, error)]


def judges_of(subject: Subject, engines: Mapping[str, Encode] = MappingProxyType({})) -> dict[str, Judge]:
    """What the rows of each file of the dataset are checked against, by its name. `engines`: see `sample_engines`."""
    manifest, tokenizer, has_source = subject.manifest, subject.tokenizer, subject.inputs is not None
    chat = None
    if manifest.chat is not None:
        chat = ChatEncoder(tokenizer, ChatSettings(**manifest.chat.encoding), str(subject.folder / MANIFEST_FILE))
    may_sample = has_source or not tokenizer.prepares_text
    policies = manifest.policies()
    judges = {
        policy: Judge(
            tokenizer=tokenizer,
            begin_id=manifest.begin_of_document_id,
            end_id=manifest.end_of_document_id,
            special_in_text=policy == "allow",
            has_source=has_source,
            engines=sample_engines(subject.tokenizer_folder, tokenizer, policy == "allow" or chat is not None, engines)
            if may_sample
            else {},
            chat=chat,
            rejects_special=policy == "reject" and chat is None,
        )
        for policy in sorted(set(policies.values()) or {"as_text"})
    }
    any_judge = next(iter(judges.values()))  # where the manifest contradicts itself, which is found elsewhere
    of_file = {entry.name: policies.get(entry.rows[0].name) for entry in manifest.shards}
    return {name: any_judge if policy is None else judges[policy] for name, policy in of_file.items()}


def _groups(file: FileCheck) -> Groups | None:
    """The groups of a file's documents, if they decide the splits: from the documents, else from the document index."""
    if file.unit is not None or file.group_column is None:
        return groups_read(group_column(file.group_column))
    if file.tables is None or not (file.tables / DOCUMENTS_FILE).exists():
        return None
    found = read_index(file.tables / DOCUMENTS_FILE, [("file", "=", file.entry.name)], ["group"])
    return groups_known(found["group"].combine_chunks())


def _documents_of(file: FileCheck, unit: Unit, advance: Advance, folder: Path) -> GoodDocuments:
    """The documents that a file of the dataset must hold: those of the unit but for dropped ones, which go to `folder`.

    Raises ValidationError if the manifest says that a shard is damaged which can be read."""
    entry, rules = file.entry, file.rules
    reading = unit.source.reading_for_index(group_column(file.group_column))
    lost = [i for i, rows in enumerate(entry.rows) if rows.n_bad is None]
    for i in lost:
        piece = unit.pieces[i]
        try:
            leave_out = leaving_out(rules.filters, piece.shard.name)
            for _ in read_batches(piece.shard, reading, piece.part, lambda bad: None, rules.limits, leave_out):
                pass
        except DamagedError:
            continue
        raise ValidationError(
            f"{MANIFEST_FILE}: {entry.name}",
            f"says that {piece.shard.name} is damaged; it can be read.",
            "Run `tokenmill build --force`.",
        )
    readable = unit.without(dict.fromkeys(lost, ""))
    return GoodDocuments(readable, rules.source, rules.limits, advance, rules.filters, reading, folder)


def _check_schema(entry: OutputShard, tokens: Path, judge: Judge) -> tuple[bool, bool]:
    """Returns whether documents have names, and whether they are conversations. Raises ValidationError if the columns, the width of
    ids, or the numbers of rows or ids are not those of the file's entry."""
    try:
        with parquet_file(tokens) as file:
            columns = file.schema_arrow
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a name in it is not UTF-8
        raise ValidationError(
            tokens, f"cannot be read: {str(error).rstrip('.')}.", "Delete the dataset and build it again."
        ) from None
    has_mask = entry.n_trained is not None
    for has_names in (True, False):
        if columns.equals(schema(id_type(judge.tokenizer.id_max), has_names, has_mask)):
            check_counts(tokens, entry.n_documents, entry.n_tokens)
            return has_names, has_mask
    rest = ", n_bytes, loss_mask and sha256" if has_mask else " and n_bytes"
    raise ValidationError(
        tokens,
        f"expected the columns id, input_ids (list of {id_type(judge.tokenizer.id_max)}){rest}; found "
        f"{', '.join(f'{column.name} ({column.type})' for column in columns)}.",
        "Delete the dataset and build it again.",
    )


def _decoded(entry: OutputShard, tokens: Path, judge: Judge) -> Iterator[Batch]:
    """Rebuilds the documents from their tokens. Texts are empty if the tokens do not decode
    to them."""
    ends: list[int] = []
    for rows in entry.rows:
        ends.append((ends[-1] if ends else 0) + rows.n_rows)
    n_decoded = piece = 0
    for batch in read_tokens(tokens):
        while batch.num_rows:
            while piece < len(ends) - 1 and n_decoded >= ends[piece]:
                piece += 1
            n_rows = batch.num_rows if piece == len(ends) - 1 else min(batch.num_rows, ends[piece] - n_decoded)
            rows = batch.slice(0, n_rows)
            first_row = entry.rows[piece].first_row + n_decoded - (ends[piece - 1] if piece else 0)
            is_row = pa.types.is_integer(rows["id"].type)
            yield Batch(
                first_row,
                _texts(rows["input_ids"], judge, entry.rows[piece].name, first_row),
                None if is_row else rows["id"].cast(pa.large_string()),
                positions=rows["id"] if is_row else None,
                pieces=pa.repeat(pa.scalar(piece, pa.int32()), n_rows),
            )
            batch, n_decoded = batch.slice(n_rows), n_decoded + n_rows


def _texts(input_ids: pa.ListArray, judge: Judge, shard: str, first_row: int) -> pa.LargeStringArray:
    if judge.tokenizer.model is None:
        return pa.repeat(pa.scalar("", pa.large_string()), len(input_ids))
    try:
        decoded = judge.tokenizer.decode_batch(input_ids, threads=1)
        begin, end = (len(judge.tokenizer.decode_bytes(ids)) for ids in (judge.begin, judge.end))
        if begin or end:
            decoded = pc.binary_slice(decoded.cast(pa.binary()), begin, -end or _END).cast(pa.large_binary())
        return decoded.cast(pa.large_string())
    except (TokenizerError, pa.ArrowInvalid):
        for i, ids in enumerate(input_ids):
            try:
                judge.tokenizer.decode_bytes(ids.values[len(judge.begin) : len(ids) - len(judge.end)]).decode()
            except (TokenizerError, UnicodeDecodeError) as found_error:
                error = found_error
                first_row += i
                break
        raise WrongRowError(shard, first_row, f"the ids do not decode to text: {error}") from None
