"""validate: token dataset, tokenizer and documents → report, or an error for the first thing that is wrong."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc

from tokenmill.artifacts.golden import checked_tokenizer
from tokenmill.config.params import Source
from tokenmill.console import Advance, StageSummary, progress, size
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.quarantine import Documents, piece_bad
from tokenmill.corpus.reader import Shard, read_batches
from tokenmill.corpus.units import Corpus, Unit
from tokenmill.counts.table import read_counts
from tokenmill.dataset.checks import aligned, check_against, check_span
from tokenmill.dataset.formats.parquet import read_tokens
from tokenmill.dataset.manifest import MANIFEST_FILE, InputRows, Manifest, OutputShard, read_manifest
from tokenmill.dataset.tokens import id_type
from tokenmill.errors import DamagedError, ValidationError
from tokenmill.layout import COUNTS_FILE, REPORT_FILE, TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.executor import RunUnits
from tokenmill.pipeline.unit_runner import UnitRunner, content
from tokenmill.storage.atomic import read, sha256_file, write_atomic
from tokenmill.storage.unit_store import unit_key
from tokenmill.tokenizer.tokenizer import Tokenizer

_MANIFEST = f"{TOKENS_DIRECTORY}/{MANIFEST_FILE}"


@dataclass(frozen=True)
class Judge:
    """What every file is checked against. `reference`: a tokenizers.Tokenizer of the same tokenizer.json."""

    tokenizer: Tokenizer
    reference: Any
    end_id: int | None
    special_in_text: bool
    sample_documents: int


class ValidateFacts(msgspec.Struct, frozen=True):
    """The sums of a correct file. `n_sampled`: the number of documents compared with tokenizers."""

    n_documents: int
    n_tokens: int
    text_bytes: int
    n_sampled: int
    piece_bad: list[int | None]

    @property
    def n_left_out(self) -> int:
        """The number of documents and pieces in the quarantine."""
        return sum(1 if n_bad is None else n_bad for n_bad in self.piece_bad)

    def __str__(self) -> str:
        return f"{self.n_documents:,} documents, {size(self.text_bytes)} of text, {self.n_tokens:,} tokens are right"


def validate(source: Source, sample_documents: int, runner: UnitRunner, run_units: RunUnits) -> StageSummary:
    """Checks data/tokens against its manifest, the tokenizer and the documents, and writes data/report/report.json.

    For every document: it is in its place, its ids are in range, and its ids decode to its bytes. For every file: the digests
    and sums match the manifest, and a sample of documents has the ids that tokenizers gives. A file that passed with the same
    documents and tokenizer is not checked again. report.json is deleted when validation starts. Raises ValidationError,
    CorpusError, UnitsError.
    """
    start_s = time.monotonic()
    (runner.root / REPORT_FILE).unlink(missing_ok=True)  # so that a failed check never leaves an old "all good"
    directory = runner.root / TOKENS_DIRECTORY
    manifest = read_manifest(directory)
    corpus = runner.corpus
    tokenizer, golden_engines = checked_tokenizer(runner.root / TOKENIZER_DIRECTORY, runner.cache_mb_max)
    files = [path.relative_to(directory).as_posix() for path in directory.rglob("*.parquet")]
    _check_manifest(manifest, corpus, files, tokenizer)
    entries = {shard.name: shard for shard in manifest.shards}
    _check_files(directory, manifest.shards, runner)
    special_in_text = manifest.special_tokens_in_text == "allow"
    judge = Judge(
        tokenizer,
        _reference(runner.root / TOKENIZER_DIRECTORY, special_in_text),
        manifest.end_of_document_id,
        special_in_text,
        sample_documents,
    )
    keys = _keys(corpus.units, source, judge, entries)
    with progress("validate", corpus.n_bytes, "bytes") as now:
        limits = runner.memory.limits
        do = partial(
            validate_unit,
            tokens=directory,
            source=source,
            judge=judge,
            entries=entries,
            limits=limits,
            advance=now.add,
        )
        done = runner.finish("validate", do, corpus.units, keys, ValidateFacts, run_units, now.skip)
    for unit, one in zip(corpus.units, done, strict=True):
        _check_sums(unit, one.facts, entries[unit.output])
    _write_report(runner.root, manifest, tokenizer, sum(one.facts.n_sampled for one in done), golden_engines)
    return StageSummary(
        "validate",
        "run",
        n_units=len(corpus.units),
        n_documents=manifest.n_documents,
        file_mb=corpus.n_bytes / 1e6,
        text_mb=manifest.text_bytes / 1e6,
        n_tokens=manifest.n_tokens,
        seconds=time.monotonic() - start_s,
    )


def validate_unit(
    unit: Unit,
    _directory: Path,
    tokens: Path,
    source: Source,
    judge: Judge,
    entries: dict[str, OutputShard],
    limits: Limits,
    advance: Advance,
) -> ValidateFacts:
    """Checks one file of the dataset, and gives its sums."""
    entry = entries[unit.output]
    sample = {i * entry.n_documents // judge.sample_documents for i in range(judge.sample_documents)}
    _check_lost(unit, source, entry, limits)
    documents = Documents(unit.without(dict.fromkeys(_lost(entry), "")), source, limits, advance)
    n_documents = n_tokens = text_bytes = n_sampled = 0
    shards = [piece.shard.name for piece in unit.pieces]
    for span in aligned(documents, shards, read_tokens(tokens / entry.name)):
        check_span(span, judge.tokenizer, judge.end_id, judge.special_in_text)
        n_sampled += check_against(span, judge.reference, judge.end_id, sample)
        n_documents += span.tokens.num_rows
        n_span_tokens = len(span.tokens["input_ids"].flatten())
        n_tokens += n_span_tokens
        advance(0, n_span_tokens)
        text_bytes += pc.sum(span.tokens["n_bytes"]).as_py()
    facts = ValidateFacts(n_documents, n_tokens, text_bytes, n_sampled, piece_bad(unit, documents.left))
    _check_sums(unit, facts, entry)
    return facts


def _lost(entry: OutputShard) -> list[int]:
    return [i for i, rows in enumerate(entry.rows) if rows.n_bad is None]


def _check_lost(unit: Unit, source: Source, entry: OutputShard, limits: Limits) -> None:
    """Checks that a shard is really unreadable if the manifest says that it is damaged."""
    for i in _lost(entry):
        piece = unit.pieces[i]
        columns = (source.text_column, source.id_column, source.text_separator)
        try:
            for _ in read_batches(piece.shard, *columns, part=piece.part, on_bad=lambda bad: None, limits=limits):
                pass
        except DamagedError:
            continue
        raise ValidationError(
            f"{_MANIFEST}: {unit.output}: says that {piece.shard.name} is damaged; it can be read. Run `tokenmill build --force`."
        )


def _keys(units: Sequence[Unit], source: Source, judge: Judge, entries: dict[str, OutputShard]) -> dict[str, str]:
    import tokenizers

    decides = {
        "code": code_digest("validate"),
        "tokenizer": judge.tokenizer.digest,
        "engine": judge.tokenizer.engine,
        "reference": tokenizers.__version__,
        "end_id": judge.end_id,
        "special_in_text": judge.special_in_text,
        "sample": judge.sample_documents,
        "source": source.reading(),
        "on_bad": [source.on_bad_document, source.on_bad_shard],
    }
    return {
        unit.name: unit_key(
            stage="validate",
            content=content(unit, with_rows=True),
            tokens=entries[unit.output].sha256,
            bad=[rows.n_bad for rows in entries[unit.output].rows],
            **decides,
        )
        for unit in units
    }


def _check_files(directory: Path, shards: Sequence[OutputShard], runner: UnitRunner) -> None:
    """Checks that every file has the digest in the manifest."""
    for shard in shards:
        path = directory / shard.name
        if runner.digests.fact(path, "sha256", str, partial(sha256_file, path)) != shard.sha256:
            raise ValidationError(
                f"{path}: not the file that the manifest names (sha256 {shard.sha256[:16]}…). Run `tokenmill build --force`."
            )


def _check_sums(unit: Unit, facts: ValidateFacts, entry: OutputShard) -> None:
    found = (facts.n_documents, facts.n_tokens, facts.text_bytes, facts.piece_bad)
    expected = (entry.n_documents, entry.n_tokens, entry.text_bytes, [rows.n_bad for rows in entry.rows])
    if found != expected:
        raise ValidationError(
            f"{unit.name}: documents, tokens, bytes of text and bad documents: found {found}, the manifest says {expected}."
        )


def _check_manifest(manifest: Manifest, corpus: Corpus, files: list[str], tokenizer: Tokenizer) -> None:
    """Checks that the manifest belongs to these documents, files and tokenizer, and that its sums match its entries."""
    if manifest.tokenizer_digest != tokenizer.digest:
        raise ValidationError(
            f"{_MANIFEST}: the dataset was made with the tokenizer {manifest.tokenizer_digest[:16]}…; "
            f"{TOKENIZER_DIRECTORY} holds {tokenizer.digest[:16]}…. Run `tokenmill build`."
        )
    shape = (str(id_type(tokenizer.id_max)), tokenizer.id_max)
    if (manifest.id_type, manifest.id_max) != shape:
        raise ValidationError(
            f"{_MANIFEST}: id_type and id_max: found {(manifest.id_type, manifest.id_max)}, the tokenizer has {shape}. "
            "Run `tokenmill build --force`."
        )
    if manifest.end_of_document_id not in (None, *tokenizer.special_tokens.values()):
        raise ValidationError(
            f"{_MANIFEST}: end_of_document_id: {manifest.end_of_document_id} is no special token of the tokenizer. "
            "Run `tokenmill build --force`."
        )
    named, found = sorted(shard.name for shard in manifest.shards), sorted(files)
    if named != found:
        raise ValidationError(
            f"{_MANIFEST}: names {len(named)} files, {TOKENS_DIRECTORY} holds {len(found)}; the first that differs: "
            f"{next(a or b for a, b in zip_longest(named, found) if a != b)}. Run `tokenmill build --force`."
        )
    _check_inputs(manifest, corpus.sha256)
    rows_of = {shard.name: shard.rows for shard in manifest.shards}
    for unit in corpus.units:
        _check_rows(unit, rows_of.get(unit.output))
    n_bad = sum(rows.n_bad or 0 for shard in manifest.shards for rows in shard.rows)
    if manifest.n_bad != n_bad:
        raise ValidationError(
            f"{_MANIFEST}: n_bad is {manifest.n_bad}, its shards have {n_bad}. Run `tokenmill build --force`."
        )
    for key in ("n_documents", "n_tokens", "text_bytes"):
        total, parts = getattr(manifest, key), sum(getattr(shard, key) for shard in manifest.shards)
        if total != parts:
            raise ValidationError(
                f"{_MANIFEST}: {key} is {total}, its shards have {parts}. Run `tokenmill build --force`."
            )


def _check_inputs(manifest: Manifest, sha256: dict[Shard, str]) -> None:
    """Checks that the manifest lists the present shards with their present digests."""
    listed, there = {shard.name for shard in manifest.inputs}, {shard.name: found for shard, found in sha256.items()}
    if listed != there.keys():
        odd = sorted(listed ^ there.keys())[0]
        known = (
            "in the manifest but not among the shards" if odd in listed else "a shard that the manifest does not name"
        )
        raise ValidationError(f"{_MANIFEST}: {odd} is {known}. Run `tokenmill build`.")
    for shard in manifest.inputs:
        if shard.sha256 != there[shard.name]:
            raise ValidationError(
                f"{shard.name}: not the file that the manifest names (sha256 {shard.sha256[:16]}…). Run `tokenmill build --force`."
            )


def _check_rows(unit: Unit, rows: list[InputRows] | None) -> None:
    """Checks that the manifest names a file for the unit, and the origin of each of its pieces."""
    named = None if rows is None else [(row.name, row.first_row) for row in rows]
    expected = [(piece.shard.name, piece.first_row) for piece in unit.pieces]
    if named != expected:
        raise ValidationError(
            f"{_MANIFEST}: {unit.output}: expected the documents from {expected}; found {named}. "
            "Run `tokenmill build --force`."
        )


def _reference(directory: Path, special_in_text: bool) -> Any:
    """The same tokenizer in the tokenizers library. `special_in_text`: whether text may become special tokens."""
    from tokenizers import Tokenizer as Reference

    reference = Reference.from_buffer(read(directory / "tokenizer.json"))
    reference.encode_special_tokens = not special_in_text
    return reference


def _write_report(
    root: Path, manifest: Manifest, tokenizer: Tokenizer, n_sampled: int, golden_engines: list[str]
) -> None:
    counts = read_counts(root / COUNTS_FILE)
    counted = (
        {"pretokens": pc.sum(counts["count"]).as_py(), "pretokens_distinct": counts.num_rows} if len(counts) else {}
    )
    report = {
        "documents": manifest.n_documents,
        "tokens": manifest.n_tokens,
        "text_bytes": manifest.text_bytes,
        "documents_bad": manifest.n_bad,
        "shards_damaged": len({rows.name for shard in manifest.shards for rows in shard.rows if rows.n_bad is None}),
        "bytes_per_token": round(manifest.text_bytes / max(manifest.n_tokens, 1), 4),
        "shards": len(manifest.inputs),
        "files": len(manifest.shards),
        **counted,
        "vocab_size": tokenizer.vocab_size,
        "id_type": manifest.id_type,
        "tokenizer_digest": tokenizer.digest,
        "checks": {
            "documents_equal_after_decoding": manifest.n_documents,
            "documents_equal_to_tokenizers": n_sampled,
            "ids_in_range": manifest.n_tokens,
            "golden_vectors_equal_in": ", ".join(golden_engines),
        },
    }
    with write_atomic(root / REPORT_FILE) as path:
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
