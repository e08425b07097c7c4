"""Finds the input files that a manifest names, checks that they are those, and maps them to the files of the dataset."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from tokenmill.checks.manifest_checks import wrong_inputs, wrong_sources
from tokenmill.config.load_params import load_params
from tokenmill.corpus.shards import Shard, ShardRange
from tokenmill.corpus.sources import find_documents
from tokenmill.corpus.units import Unit
from tokenmill.dataset.input_files import inputs_of, parts_of, units_of
from tokenmill.dataset.manifest import InputRows, Manifest
from tokenmill.errors import CorpusError, ParamsError, ValidationError
from tokenmill.layout import PARAMS_FILE


@dataclass(frozen=True)
class Inputs:
    """`units`: the documents of each file of the dataset, by its name, as far as the input files are there. `wrong`: how the
    input files differ from the manifest. `not_checked`: what could not be checked, and why."""

    units: Mapping[str, Unit]
    wrong: Sequence[str]
    not_checked: Sequence[str]


def check_inputs(manifest: Manifest, root: Path, pool: Executor, stopped: Callable[[], bool]) -> Inputs:
    """Reads the input files below `root` for their digests. `stopped` ends that early. Raises OSError for a file that the
    machine cannot read."""
    if manifest.source is None and not manifest.sources:
        words = "the documents: the manifest, of format 3, does not say how they are read; pass --no-source to check the rest"
        return Inputs({}, [], [words])
    not_checked = []
    shards, missing = inputs_of(manifest, root)
    if missing:
        not_checked.append(
            f"{len(missing):,} of {len(manifest.inputs):,} input files are not in {root.absolute()}: {', '.join(missing[:3])}"
            f"{', …' if len(missing) > 3 else ''}; name their folder with --source, or pass --no-source"
        )
    rows_of = _rows_of(manifest)

    def look(shard: Shard) -> tuple[str, list[ShardRange | None]] | ValidationError:
        try:
            return parts_of(shard, rows_of.get(shard.name, []), stopped)
        except ValidationError as error:
            return error

    wrong: list[str] = []
    sha256 = {shard.name: shard.sha256 for shard in manifest.inputs}  # missing or wrong files have a message already
    parts: dict[str, dict[tuple[int, int], ShardRange | None]] = {}
    for shard, looked in zip(shards, pool.map(look, shards), strict=True):
        if isinstance(looked, ValidationError):
            wrong.append(str(looked))
            continue
        sha256[shard.name], found = looked
        rows = rows_of.get(shard.name, [])  # none: the manifest contradicts itself, which is found elsewhere
        parts[shard.name] = {(one.first_row, one.first_line): part for one, part in zip(rows, found, strict=False)}
    params = root / PARAMS_FILE
    if params.exists():
        try:
            documents = find_documents(root, load_params(params))
            for shard in documents:
                sha256.setdefault(shard.name, "")
            wrong += wrong_sources(manifest, documents)
        except (CorpusError, ParamsError) as error:
            not_checked.append(f"whether the project has other documents: {'; '.join(error.lines)}")
    wrong += wrong_inputs(manifest, sha256)
    return Inputs(units_of(manifest, {shard.name: shard for shard in shards}, parts), wrong, not_checked)


def _rows_of(manifest: Manifest) -> dict[str, list[InputRows]]:
    """The parts of each input file, in order."""
    found: dict[str, list[InputRows]] = {}
    for rows in (rows for entry in manifest.shards for rows in entry.rows):
        found.setdefault(rows.name, []).append(rows)
    for some in found.values():
        some.sort(key=lambda rows: (rows.first_row, rows.first_line))
    return found
