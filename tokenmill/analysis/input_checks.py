"""Finds the input files that a manifest names, checks that they are those, and maps them to the files of the dataset."""

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from tokenmill.checks.findings import Finding, NotChecked, of_error
from tokenmill.checks.manifest_checks import wrong_inputs, wrong_sources
from tokenmill.checks.subject import Inputs
from tokenmill.config.load_params import load_params
from tokenmill.corpus.filter import DocumentList
from tokenmill.corpus.shards import Shard, ShardRange
from tokenmill.corpus.source_shards import find_documents
from tokenmill.dataset.entries import InputRows
from tokenmill.dataset.input_files import inputs_of, parts_of, units_of
from tokenmill.dataset.manifest import Manifest
from tokenmill.errors import CorpusError, ParamsError, ValidationError
from tokenmill.filters import asked_lists
from tokenmill.layout import PARAMS_FILE
from tokenmill_reader.manifest import MANIFEST_FILE


def find_inputs(
    manifest: Manifest, root: Path, pool: Executor, stopped: Callable[[], bool]
) -> tuple[Inputs, list[Finding | NotChecked]]:
    """The documents of a dataset below `root`, and what is wrong with them or missing.

    Reads the input files for their digests. `stopped` ends that early. Raises OSError for a file that the machine cannot read.
    """
    if manifest.source is None and not manifest.sources:
        words = "the documents: the manifest, of format 3, does not say how they are read; pass --no-source to check the rest"
        return Inputs({}, []), [NotChecked(words)]
    findings: list[Finding | NotChecked] = []
    shards, missing = inputs_of(manifest, root)
    if missing:
        names = f"{', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}"
        findings.append(
            NotChecked(
                f"{len(missing):,} of {len(manifest.inputs):,} input files are not in {root.absolute()}: {names}; name their "
                "folder with --source, or pass --no-source"
            )
        )
    rows_of = _rows_of(manifest)

    def look(shard: Shard) -> tuple[str, list[ShardRange | None]] | ValidationError:
        try:
            return parts_of(shard, rows_of.get(shard.name, []), stopped)
        except ValidationError as error:
            return error

    sha256 = {shard.name: shard.sha256 for shard in manifest.inputs}  # missing or wrong files have a message already
    parts: dict[str, dict[tuple[int, int], ShardRange | None]] = {}
    for shard, looked in zip(shards, pool.map(look, shards), strict=True):
        if isinstance(looked, ValidationError):
            findings.append(of_error(MANIFEST_FILE, looked))
            continue
        sha256[shard.name], ranges = looked
        rows = rows_of.get(shard.name, [])  # none: the manifest contradicts itself, which is found elsewhere
        parts[shard.name] = {(one.first_row, one.first_line): part for one, part in zip(rows, ranges, strict=False)}
    lists: list[DocumentList] = []
    if (root / PARAMS_FILE).exists():
        try:
            params = load_params(root / PARAMS_FILE)
            lists = [*asked_lists(root, params.source, params.has_ids).values()]
            documents = find_documents(root, params)
            for shard in documents:
                sha256.setdefault(shard.name, "")
            findings += wrong_sources(manifest, documents)
        except (CorpusError, ParamsError) as error:
            findings.append(
                NotChecked(
                    f"whether the documents are those of {PARAMS_FILE} and source.drop: {'; '.join(error.lines)}"
                )
            )
    findings += wrong_inputs(manifest, sha256)
    units = units_of(manifest, {shard.name: shard for shard in shards}, parts)
    return Inputs(units, lists), findings


def _rows_of(manifest: Manifest) -> dict[str, list[InputRows]]:
    """The parts of each input file, in order."""
    rows_by_name: dict[str, list[InputRows]] = {}
    for rows in (rows for entry in manifest.shards for rows in entry.rows):
        rows_by_name.setdefault(rows.name, []).append(rows)
    for parts in rows_by_name.values():
        parts.sort(key=lambda rows: (rows.first_row, rows.first_line))
    return rows_by_name
