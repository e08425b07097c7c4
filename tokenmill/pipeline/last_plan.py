"""The last plan of a build, kept in a file until it is compared with the outcome."""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenmill.console import say
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.errors import ParamsError, ValidationError
from tokenmill.layout import (
    COUNTS_REPORT_FILE,
    LAST_BUILD_FILE,
    LAST_PLAN_FILE,
    OUTPUT_DIRECTORIES,
    SCRATCH_DIRECTORY,
    TOKENS_DIRECTORY,
)
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.json_files import read_json
from tokenmill.storage.writable import may_write
from tokenmill.summary import StageSummary
from tokenmill_reader.shown import size

SCHEMA_VERSION = 1
_ROUNDED = 1e-9  # the error of arithmetic, as a share: an estimate may be exact

COLUMNS = ("", "from", "about", "to", "found", "")
"""The column heads of the rows that `shown` gives."""

_NAMES = {
    "documents": "documents",
    "tokens": "tokens",
    "text_bytes": "text",
    "output_bytes": "tokens as Parquet",
    "sets_bytes": "files for training jobs",
    "distinct": "distinct pre-tokens",
    "disk_bytes": "disk: new in all",
    "dvc_cache_bytes": "  copies in DVC's cache",
    "spill_bytes": "disk: while it runs",
    "peak_memory_bytes": "peak memory",
    "seconds": "seconds of all stages",
}


class Compared(NamedTuple):
    """A planned quantity and what was found, None if unknown. `is_inside`: whether `found` is in the range."""

    quantity: str
    low: float
    point: float
    high: float
    found: float | None
    is_inside: bool | None


def compare(plan: Mapping[str, Any], outcome: Mapping[str, float]) -> list[Compared]:
    """Compares the quantities of a plan with those of the build after it, in the plan's order.

    `plan`: the content of last-plan.json. `outcome`: what `outcome_of` gives; missing quantities are unknown.

    >>> compare({"quantities": {"tokens": {"low": 1, "point": 2, "high": 3}}}, {"tokens": 4})
    [Compared(quantity='tokens', low=1, point=2, high=3, found=4, is_inside=False)]
    """
    rows = []
    for name, planned in plan["quantities"].items():
        low, point, high = planned["low"], planned["point"], planned["high"]
        found = outcome.get(name)
        is_inside = None if found is None else low * (1 - _ROUNDED) <= found <= high * (1 + _ROUNDED)
        rows.append(Compared(name, low, point, high, found, is_inside))
    return rows


def shown(rows: Iterable[Compared]) -> list[tuple[str, ...]]:
    """The quantities for a person: a name, the range, what was found, and whether that is in the range."""
    cells = []
    for row in rows:
        numbers = (_number(row.quantity, n) for n in (row.low, row.point, row.high, row.found))
        cells.append((_NAMES.get(row.quantity, f"  {row.quantity.removeprefix('seconds ')}"), *numbers, _verdict(row)))
    return cells


def _verdict(row: Compared) -> str:
    """Whether what was found is in the range. Seconds outside it have other words: they tell of the machine, not of the data."""
    if row.found is None or row.is_inside is None:
        return ""
    if row.is_inside:
        return "in range"
    if row.quantity.startswith("seconds"):
        return "slower" if row.found > row.high else "faster"
    return "outside"


def _number(quantity: str, n: float | None) -> str:
    if n is None:
        return "–"
    if quantity.endswith("_bytes"):
        return size(n)
    return f"{n:,.1f}" if quantity.startswith("seconds") else f"{n:,.0f}"


def keep_plan(root: Path, plan: Mapping[str, Any]) -> None:
    """Writes the plan to .tokenmill/last-plan.json, or says that this user may not."""
    file = root / LAST_PLAN_FILE
    if not may_write(file.parent):
        say(f"plan: {file} cannot be written, so `tokenmill plan --outcome` will not know this plan")
        return
    with write_atomic(file) as path:
        path.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")


def read_plan(root: Path) -> dict[str, Any]:
    """The last plan. Raises ParamsError if there is none that this tokenmill can read."""
    path = root / LAST_PLAN_FILE
    try:
        plan: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        raise ParamsError(
            path,
            "is not there; `tokenmill plan` keeps a plan if there is something to build.",
            "Run `tokenmill plan`, then `tokenmill build`, then this command again.",
        ) from None
    except ValueError:
        plan = {}
    if plan.get("schema_version") != SCHEMA_VERSION:
        raise ParamsError(path, "is not a plan that this version of tokenmill wrote.", "Run `tokenmill plan` again.")
    return plan


def outcome_of(root: Path, plan: Mapping[str, Any]) -> dict[str, float]:
    """The quantities of the last build, named as in the plan, without those that it did not make or measure.

    Raises ParamsError if there was no build since the plan, and ValidationError for a damaged dataset.
    """
    if _is_of_a_build_to_come(root):
        raise ParamsError(root / LAST_BUILD_FILE, "no build has ended since the plan.", "Run `tokenmill build` first.")
    return _outcome(root, plan, read_json(root / LAST_BUILD_FILE))


def outcome_shown(root: Path, summaries: Iterable[StageSummary]) -> list[tuple[str, ...]]:
    """Compares the build that has just ended with its plan, as rows of `shown`; empty without a plan."""
    try:
        plan = read_plan(root)
        if not _is_of_a_build_to_come(root):
            return []
        return shown(compare(plan, _outcome(root, plan, [dataclasses.asdict(summary) for summary in summaries])))
    except (ParamsError, ValidationError):
        return []


def _is_of_a_build_to_come(root: Path) -> bool:
    """Whether the last plan was made after the last build had ended."""
    path = root / LAST_BUILD_FILE
    return not path.exists() or path.stat().st_mtime_ns < (root / LAST_PLAN_FILE).stat().st_mtime_ns


def _outcome(root: Path, plan: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    quantities: dict[str, float] = {}
    ran = [stage for stage in stages if stage["action"] == "run"]
    for stage in ran:
        quantities[f"seconds {stage['stage']}"] = stage["seconds"]
    planned = {f"seconds {stage['stage']}" for stage in ran} & plan["quantities"].keys()
    quantities["seconds"] = sum(quantities[name] for name in planned)
    if peaks := [stage["peak_mb"] for stage in ran if stage["peak_mb"] is not None]:
        quantities["peak_memory_bytes"] = max(peaks) * 1e6
    if (root / TOKENS_DIRECTORY).is_dir():
        manifest = read_manifest(root / TOKENS_DIRECTORY)
        quantities |= {
            "documents": manifest.n_documents,
            "tokens": manifest.n_tokens,
            "text_bytes": manifest.text_bytes,
            "output_bytes": sum(shard.n_bytes for shard in manifest.shards),
            "sets_bytes": sets_bytes_of(manifest),
        }
    if (root / COUNTS_REPORT_FILE).exists():
        quantities["distinct"] = read_json(root / COUNTS_REPORT_FILE)["pretokens_distinct"]
    quantities["disk_bytes"] = disk_used(root, plan["dvc_cache"]) - plan["disk_before_bytes"]
    return quantities


def sets_bytes_of(manifest: Manifest) -> int:
    """The bytes of all file sets. Hard-linked files of repeated passes count once."""
    return sum(
        {(file_set.format, file.sha256): file.n_bytes for file_set in manifest.sets for file in file_set.files}.values()
    )


def disk_used(root: Path, dvc_cache: str) -> int:
    """The bytes on the disk of a build's outputs, the unit store and DVC's cache. A file with several names counts once."""
    outputs = [folder for folders in OUTPUT_DIRECTORIES.values() for folder in folders]
    store = f"{SCRATCH_DIRECTORY}/units"  # and not the database of Prefect, which is beside it
    found = [status for folder in (*outputs, store, dvc_cache) for status in _files(root / folder)]
    blocks = {(status.st_dev, status.st_ino): status.st_blocks for status in found}
    return sum(blocks.values()) * 512


def _files(folder: Path) -> Iterable[os.stat_result]:
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                yield (Path(directory) / name).lstat()
            except FileNotFoundError:  # deleted meanwhile
                continue
