"""Checks that a manifest agrees with itself, with its tokenizer, and with the existing files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pyarrow as pa

from tokenmill.chat.answers import AnswerCounts, added
from tokenmill.checks.findings import BUILD, COPY, FORCE, Finding, NotChecked, in_manifest
from tokenmill.corpus.quarantine import QUARANTINE_FILE
from tokenmill.corpus.shards import Shard
from tokenmill.dataset.entries import InputRows
from tokenmill.dataset.manifest import Manifest
from tokenmill.formats.tokens import id_type
from tokenmill.storage.file_facts import Digests
from tokenmill.tokenizer.beside import is_written_here
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader import copy_check
from tokenmill_reader.checked_parquet import read_table
from tokenmill_reader.manifest import DOCUMENTS_FOLDER, MANIFEST_FILE
from tokenmill_reader.manifest import wrong_names as names_not_allowed
from tokenmill_reader.regular_files import sha256_file


def wrong_with_tokenizer(manifest: Manifest, tokenizer: Tokenizer) -> Iterator[Finding]:
    """Says which fields of the manifest do not match this tokenizer."""
    if manifest.tokenizer_digest != tokenizer.digest:
        made, here = manifest.tokenizer_digest[:16], tokenizer.digest[:16]
        yield in_manifest(f"the dataset was made with the tokenizer {made}…; the tokenizer here is {here}….", BUILD)
        return
    shape = (str(id_type(tokenizer.id_max)), tokenizer.id_max)
    if (manifest.id_type, manifest.id_max) != shape:
        yield in_manifest(
            f"id_type and id_max: found {(manifest.id_type, manifest.id_max)}; expected {shape}, as the tokenizer has them."
        )
    for name in ("begin_of_document_id", "end_of_document_id"):
        if (id := getattr(manifest, name)) not in (None, *tokenizer.special_tokens.values()):
            yield in_manifest(f"{name}: expected the id of a special token of the tokenizer; found {id}.")


def wrong_digest(manifest: Manifest, content: bytes) -> Iterator[Finding]:
    """Whether the manifest's own digest, or its text `content`, is not that of its fields."""
    if manifest.format_version > 3 and manifest.digest != manifest.own_digest():
        yield in_manifest(
            f"digest: found {manifest.digest[:16]}…; expected {manifest.own_digest()[:16]}…, the digest of its fields. "
            "The manifest was changed."
        )
    elif manifest.format_version > 3 and manifest.as_json().encode() != content:
        yield in_manifest("its text differs from what a build writes for these fields: the manifest was changed.")


def wrong_names(manifest: Manifest) -> Iterator[Finding]:
    """The file names that lead out of the dataset's folder or occur twice."""
    beside = (manifest.tables, manifest.tokenizer_files)
    for names in (manifest.names(), *([file.name for file in files] for files in beside)):
        for name in names_not_allowed(names):
            yield in_manifest(f"{name!r} is there twice, or is no name of a file in the dataset.")


def misplaced(manifest: Manifest) -> Iterator[Finding]:
    """The documents' own files that are not in the folder for them."""
    for name, shard in manifest.outputs():
        if manifest.format_version >= 8 and name == shard.name:
            yield in_manifest(f"{name!r} is not in the folder {DOCUMENTS_FOLDER}.")


def wrong_in_itself(manifest: Manifest) -> Iterator[Finding]:
    """Says where the manifest contradicts itself: sums, and the rows of shards, which must be consecutive."""
    for key in ("n_documents", "n_tokens", "text_bytes"):
        total, parts = getattr(manifest, key), sum(getattr(shard, key) for shard in manifest.shards)
        if total != parts:
            yield in_manifest(f"{key} is {total}, but its shards have {parts} together.")
    n_bad = sum(rows.n_bad or 0 for shard in manifest.shards for rows in shard.rows)
    if manifest.n_bad != n_bad:
        yield in_manifest(f"n_bad is {manifest.n_bad}, but its shards have {n_bad} together.")
    n_dropped = sum(rows.n_dropped for shard in manifest.shards for rows in shard.rows)
    if sum(manifest.n_dropped.values()) != n_dropped:
        yield in_manifest(f"n_dropped is {manifest.n_dropped}, but its shards have {n_dropped} together.")
    for shard in manifest.shards:
        if (n_rows := sum(rows.n_rows for rows in shard.rows)) != shard.n_documents:
            yield in_manifest(f"{shard.name}: n_documents is {shard.n_documents}, but its rows have {n_rows} together.")
    of_shard: dict[str, list[InputRows]] = {}
    for rows in (rows for shard in manifest.shards for rows in shard.rows):
        of_shard.setdefault(rows.name, []).append(rows)
    listed = {shard.name for shard in manifest.inputs}
    if odd := sorted(listed ^ of_shard.keys()):
        known = "among the inputs but not in a file" if odd[0] in listed else "in a file but not among the inputs"
        yield in_manifest(f"{odd[0]} is {known} of the dataset.")
    if lacking := [one.name for one in manifest.shards if one.tokens_sha256 is None and manifest.format_version >= 9]:
        yield in_manifest(f"{lacking[0]}: tokens_sha256: expected the digest of its tokens; found none.")
    yield from _wrong_chat(manifest)
    yield from _wrong_sources(manifest)
    for name, some in of_shard.items():
        yield from _not_in_a_row(name, sorted(some, key=lambda rows: (rows.first_row, rows.first_line)))


def _wrong_chat(manifest: Manifest) -> Iterator[Finding]:
    """Says where trained tokens are contradictory: files of conversations have numbers of them and a known sum; texts have none."""
    for shard in manifest.shards:
        if (shard.n_trained is None) != (manifest.chat is None):
            says = "there are no conversations" if manifest.chat is None else "its documents are conversations"
            yield in_manifest(f"{shard.name}: n_trained is {shard.n_trained}, but the key chat says that {says}.")
            return
    if manifest.chat is None:
        return
    if manifest.chat.n_trained != (n := sum(shard.n_trained or 0 for shard in manifest.shards)):
        yield in_manifest(f"chat: n_trained is {manifest.chat.n_trained}, but its files have {n} together.")
    sums = added(shard.answers or AnswerCounts() for shard in manifest.shards)
    if manifest.chat.answers not in (None, sums):
        yield in_manifest(f"chat: answers is {manifest.chat.answers}, but its files have {sums} together.")
    if wrong := [shard.name for shard in manifest.shards if (shard.n_trained or 0) > shard.n_tokens]:
        yield in_manifest(f"{wrong[0]}: expected at most as many trained tokens as tokens; found more.")


def _wrong_sources(manifest: Manifest) -> Iterator[Finding]:
    """Says where named sources are contradictory: each input and output file belongs to one, and a source's sums are those of its
    files."""
    names = [source.name for source in manifest.sources]
    if len(set(names)) < len(names):
        yield in_manifest(f"sources: expected each name once; found {names}.")
        return
    known: set[str | None] = set(names) or {None}
    for input_file in manifest.inputs:
        if input_file.source not in known:
            yield in_manifest(
                f"{input_file.name}: source is {input_file.source!r}, which is not among the sources {names}."
            )
            return
    source_of = {input_file.name: input_file.source for input_file in manifest.inputs}
    sums = {name: [0, 0, 0] for name in names}
    for shard in manifest.shards:
        sources_of_shard = {source_of.get(rows.name) for rows in shard.rows}
        if len(sources_of_shard) > 1:
            yield in_manifest(
                f"{shard.name}: holds documents of several sources, {sorted(map(str, sources_of_shard))}."
            )
            return
        for name in sources_of_shard & sums.keys():
            for i, n in enumerate((shard.n_documents, shard.n_tokens, shard.text_bytes)):
                sums[str(name)][i] += n
    for entry in manifest.sources:
        if (says := [entry.n_documents, entry.n_tokens, entry.text_bytes]) != sums[entry.name]:
            words = "n_documents, n_tokens and text_bytes are"
            yield in_manifest(f"sources: {entry.name}: {words} {says}, but its files have {sums[entry.name]} together.")
        if (entry.epochs is None) == (entry.tokens is None):
            yield in_manifest(
                f"sources: {entry.name}: expected one of epochs and tokens; found {entry.epochs} and {entry.tokens}."
            )
    if manifest.mixture and manifest.files is None:
        yield in_manifest("mixture: it names sources of file sets, but the key files says that there are none.")
    if len({entry.id_column is None for entry in manifest.sources}) > 1:
        yield in_manifest("sources: expected an id_column for all of them or for none; found some of each.")


def wrong_sources(manifest: Manifest, shards: Iterable[Shard]) -> Iterator[Finding]:
    """Says how the manifest's named sources differ from those of params.yaml, for the shards that both have."""
    source_of, known = (
        {input_file.name: input_file.source for input_file in manifest.inputs},
        manifest.document_sources(),
    )
    differ: dict[str, Finding] = {}
    for shard in shards:
        of_params, source = shard.source, known.get(shard.name)
        if of_params is None or shard.name not in source_of:
            continue
        if source_of[shard.name] != of_params.name:
            of, now = (
                f"the source {name}" if name else "no named source" for name in (source_of[shard.name], of_params.name)
            )
            yield in_manifest(f"{shard.name}: is of {of}; in params.yaml, it is of {now}.", BUILD)
            return
        if of_params.name is not None and source is not None and of_params.section not in differ:
            of_now = asdict(of_params)
            words = [
                f"{key} is {value!r}, not {of_now[key]!r}"
                for key, value in asdict(source).items()
                if key != "globs" and value != of_now[key]
            ]
            if words:
                differ[of_params.section] = in_manifest(
                    f"{of_params.section}: params.yaml says it otherwise: {', '.join(words)}.", BUILD
                )
    yield from differ.values()


def _not_in_a_row(name: str, parts: list[InputRows]) -> Iterator[Finding]:
    """Says which rows are missing or repeated between the parts of a shard; after a damaged part, the next row is unknown."""
    next_row: int | None = 0
    if parts[0].first_line != 1:
        yield in_manifest(f"{name}: first_line of its first rows is {parts[0].first_line}, expected 1.")
    for rows in parts:
        if next_row is not None and rows.first_row != next_row:
            yield in_manifest(
                f"{name}: a file of the dataset holds its rows from {rows.first_row} on, expected {next_row}."
            )
        next_row = rows.next_row


def wrong_files(named: Iterable[str], found: Iterable[str], folder: str = "") -> Iterator[Finding]:
    """The files that are named and missing, and those that are found and not named. `folder`: theirs in the findings' names."""
    named, found = set(named), set(found)
    for name in sorted(named - found):
        yield Finding(f"{folder}{name}", None, "missing; the manifest names it.", COPY)
    for name in sorted(found - named):
        fix = "Remove it if it is not yours to keep here."
        yield Finding(f"{folder}{name}", None, f"not named by {MANIFEST_FILE}.", fix)


def wrong_file(path: Path, n_bytes: int, sha256: str, digests: Digests | None = None) -> str | None:
    """Says how an existing file differs from the one that the manifest names; None if it does not, or is missing. `digests`: what
    is known of unchanged files; None: the file is read."""
    if digests is None:
        return copy_check.wrong_file(path, n_bytes, sha256)
    return copy_check.wrong_file(
        path, n_bytes, sha256, lambda path: digests.fact(path, "sha256", str, partial(sha256_file, path))
    )


def wrong_tokenizer_files(manifest: Manifest, folder: Path) -> Iterator[Finding]:
    """Says how the files in the tokenizer's folder differ from those that the manifest names, from format 10 on."""
    if manifest.format_version < 10 or not folder.is_dir():
        return
    here = f"../{folder.name}/"
    yield from wrong_files([file.name for file in manifest.tokenizer_files], set(copy_check.files_below(folder)), here)
    for file in manifest.tokenizer_files:
        what = wrong_file(folder / file.name, file.n_bytes, file.sha256)
        if what and not is_written_here(folder / file.name):
            yield Finding(f"{here}{file.name}", None, what, COPY)


def wrong_quarantine(manifest: Manifest, folder: Path | None) -> Iterator[Finding | NotChecked]:
    """Says how the digest and number of documents of the quarantine in a folder differ from the manifest."""
    if folder is None:
        return
    path = folder / QUARANTINE_FILE
    if not path.exists():
        if manifest.n_bad or any(rows.n_bad is None for entry in manifest.shards for rows in entry.rows):
            yield NotChecked(f"the quarantine: {path} is not there; copy it beside the dataset")
        return
    name = f"../{folder.name}/{QUARANTINE_FILE}"
    try:
        rows = read_table(path, columns=["row"], partitioning=None)["row"]
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        yield Finding(name, None, f"cannot be read: {' '.join(str(error).split()).rstrip('.')}.", FORCE)
        return
    if sha256_file(path) != manifest.quarantine_sha256:
        yield Finding(
            name, None, f"not the file that the manifest names (sha256 {manifest.quarantine_sha256[:16]}…).", FORCE
        )
    if (n_found := len(rows) - rows.null_count) != manifest.n_bad:
        yield Finding(name, None, f"holds {n_found:,} documents; {MANIFEST_FILE} says {manifest.n_bad:,}.", FORCE)


def wrong_inputs(manifest: Manifest, sha256: Mapping[str, str]) -> Iterator[Finding]:
    """Says how the inputs of the manifest differ from the present shards, by digest."""
    listed = {shard.name for shard in manifest.inputs}
    for odd in sorted(listed ^ sha256.keys()):
        known = (
            "in the manifest but not among the shards" if odd in listed else "a shard that the manifest does not name"
        )
        yield in_manifest(f"{odd} is {known}.", BUILD)
    for shard in manifest.inputs:
        if shard.name in sha256 and shard.sha256 != sha256[shard.name]:
            yield in_manifest(f"{shard.name}: not the file that the manifest names (sha256 {shard.sha256[:16]}…).")
