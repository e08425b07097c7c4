"""validate: token dataset, tokenizer and documents → report, or the first thing that is wrong."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from tokenmill.checks import aligned, check_against, check_span
from tokenmill.console import Advance, StageSummary, progress
from tokenmill.corpus import Batch, Shard, find_shards, read_batches
from tokenmill.counts import read_counts
from tokenmill.dataset import id_type, read_tokens
from tokenmill.errors import ValidationError
from tokenmill.files import sha256_file, write_atomic
from tokenmill.layout import COUNTS_FILE, REPORT_FILE, TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.manifest import Manifest, OutputShard, read_manifest
from tokenmill.params import Source
from tokenmill.tokenizer import Tokenizer
from tokenmill.units import RunUnits


@dataclass(frozen=True)
class Judge:
    """What every shard is held against. `reference`: a tokenizers.Tokenizer of the same tokenizer.json."""

    tokenizer: Tokenizer
    reference: Any
    end_id: int | None
    special_in_text: bool
    sample_documents: int


def validate(root: Path, source: Source, sample_documents: int, run_units: RunUnits) -> StageSummary:
    """Checks data/tokens against its manifest, the tokenizer and the documents, and writes data/report/report.json.

    For every document: there and in its place, ids in range, its bytes back from its ids; for every shard: the manifest's
    digests and sums, and a sample of documents with the ids that tokenizers gives. Raises ValidationError, CorpusError.
    """
    start_s = time.monotonic()
    manifest = read_manifest(root / TOKENS_DIRECTORY)
    shards = find_shards(root, source.glob)
    tokenizer = Tokenizer.load(root / TOKENIZER_DIRECTORY)
    directory = root / TOKENS_DIRECTORY
    files = [path.relative_to(directory).as_posix() for path in directory.rglob("*.parquet")]
    _check_manifest(manifest, shards, files, tokenizer)
    judge = Judge(
        tokenizer,
        _reference(root / TOKENIZER_DIRECTORY, manifest.special_tokens_in_text == "allow"),
        manifest.end_of_document_id,
        manifest.special_tokens_in_text == "allow",
        sample_documents,
    )
    entries = {shard.source.name: shard for shard in manifest.shards}
    with progress("validate", sum(shard.n_bytes for shard in shards) / 1e6, "file MB") as advance:
        do = partial(validate_unit, root=root, source=source, judge=judge, entries=entries, advance=advance)
        n_sampled = sum(run_units("validate", do, shards))
    _write_report(root, manifest, tokenizer, n_sampled)
    return StageSummary(
        "validate",
        "run",
        n_units=len(shards),
        n_documents=manifest.n_documents,
        text_mb=manifest.text_bytes / 1e6,
        n_tokens=manifest.n_tokens,
        seconds=time.monotonic() - start_s,
    )


def validate_unit(
    unit: Shard, root: Path, source: Source, judge: Judge, entries: dict[str, OutputShard], advance: Advance
) -> int:
    """Checks one shard; what comes back is how many of its documents were compared with tokenizers."""
    entry = entries[unit.name]
    output = root / TOKENS_DIRECTORY / entry.name
    for path, expected in ((output, entry.sha256), (unit.path, entry.source.sha256)):
        if not path.is_file() or sha256_file(path) != expected:
            raise ValidationError(
                f"{path}: not the file that the manifest names (sha256 {expected[:16]}…). Run `tokenmill build --force`."
            )
    n_documents = n_tokens = text_bytes = n_sampled = 0
    sample = {i * entry.n_documents // judge.sample_documents for i in range(judge.sample_documents)}

    def documents() -> Iterator[Batch]:
        for batch in read_batches(unit, source.text_column, source.id_column, source.text_separator):
            yield batch
            advance(batch.file_bytes / 1e6)

    for span in aligned(unit.name, documents(), read_tokens(output)):
        check_span(span, judge.tokenizer, judge.end_id, judge.special_in_text)
        n_sampled += check_against(span, judge.reference, judge.end_id, sample)
        n_documents += span.tokens.num_rows
        n_tokens += len(span.tokens["input_ids"].flatten())
        text_bytes += pc.sum(span.tokens["n_bytes"]).as_py()
    found = (n_documents, n_tokens, text_bytes)
    expected_sums = (entry.n_documents, entry.n_tokens, entry.text_bytes)
    if found != expected_sums:
        raise ValidationError(
            f"{unit.name}: documents, tokens and bytes of text: found {found}, the manifest says {expected_sums}."
        )
    return n_sampled


def _check_manifest(manifest: Manifest, shards: list[Shard], files: list[str], tokenizer: Tokenizer) -> None:
    """The manifest speaks of these shards, files and tokenizer, and its sums are the sums of its entries."""
    if manifest.tokenizer_digest != tokenizer.digest:
        raise ValidationError(
            f"manifest.json: the dataset was made with the tokenizer {manifest.tokenizer_digest[:16]}…; "
            f"{TOKENIZER_DIRECTORY} holds {tokenizer.digest[:16]}…. Run `tokenmill build`."
        )
    shape = (str(id_type(tokenizer.id_max)), tokenizer.id_max)
    if (manifest.id_type, manifest.id_max) != shape:
        raise ValidationError(
            f"manifest.json: id_type and id_max: found {(manifest.id_type, manifest.id_max)}, the tokenizer has {shape}. "
            "Run `tokenmill build --force`."
        )
    if manifest.end_of_document_id not in (None, *tokenizer.special_tokens.values()):
        raise ValidationError(
            f"manifest.json: end_of_document_id: {manifest.end_of_document_id} is no special token of the tokenizer. "
            "Run `tokenmill build --force`."
        )
    named, found = sorted(shard.name for shard in manifest.shards), sorted(files)
    if named != found:
        raise ValidationError(
            f"manifest.json: names {len(named)} files, {TOKENS_DIRECTORY} holds {len(found)}; the first that differs: "
            f"{next(a or b for a, b in zip_longest(named, found) if a != b)}. Run `tokenmill build --force`."
        )
    listed, there = {shard.source.name for shard in manifest.shards}, {shard.name for shard in shards}
    if listed != there:
        odd = sorted(listed ^ there)[0]
        known = (
            "in the manifest but not among the shards" if odd in listed else "a shard that the manifest does not name"
        )
        raise ValidationError(f"manifest.json: {odd} is {known}. Run `tokenmill build`.")
    for key in ("n_documents", "n_tokens", "text_bytes"):
        total, parts = getattr(manifest, key), sum(getattr(shard, key) for shard in manifest.shards)
        if total != parts:
            raise ValidationError(
                f"manifest.json: {key} is {total}, its shards have {parts}. Run `tokenmill build --force`."
            )


def _reference(directory: Path, special_in_text: bool) -> Any:
    """The tokenizers library's own reading of the tokenizer, told whether to leave special tokens in text alone."""
    from tokenizers import Tokenizer as Reference

    reference = Reference.from_file(str(directory / "tokenizer.json"))
    reference.encode_special_tokens = not special_in_text
    return reference


def _write_report(root: Path, manifest: Manifest, tokenizer: Tokenizer, n_sampled: int) -> None:
    counts = read_counts(root / COUNTS_FILE)
    report = {
        "documents": manifest.n_documents,
        "tokens": manifest.n_tokens,
        "text_bytes": manifest.text_bytes,
        "bytes_per_token": round(manifest.text_bytes / max(manifest.n_tokens, 1), 4),
        "shards": len(manifest.shards),
        "pretokens": pc.sum(counts["count"]).as_py() or 0,
        "pretokens_distinct": counts.num_rows,
        "vocab_size": tokenizer.vocab_size,
        "id_type": manifest.id_type,
        "tokenizer_digest": tokenizer.digest,
        "checks": {
            "documents_equal_after_decoding": manifest.n_documents,
            "documents_equal_to_tokenizers": n_sampled,
            "ids_in_range": manifest.n_tokens,
        },
    }
    with write_atomic(root / REPORT_FILE) as path:
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
