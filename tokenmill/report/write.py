"""Writes the report of a checked dataset: report.json, metrics.json, the data of the plots, and the gates' outcomes."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenmill.config.params import Validate
from tokenmill.console import say
from tokenmill.layout import GATES_FILE, METRICS_FILE, PLOTS_DIRECTORY, REPORT_FILE
from tokenmill.quantities import finite
from tokenmill.report.collect import OWN, Reported, collect
from tokenmill.report.gate_results import GateResult, Published, check_gates, flat, refuse_broken
from tokenmill.report.page import write_page
from tokenmill.storage.atomic import write_atomic

METRICS = {
    "documents": "documents",
    "documents_bad": "documents_bad",
    "documents_dropped": "documents_dropped",
    "tokens": "tokens",
    "text_bytes": "text_bytes",
    "bytes_per_token": "bytes_per_token.overall",
    "tokens_per_word": "tokens_per_word.overall",
    "words_whole_share": "words_whole_share.overall",
    "unused_tokens_share": "unused_tokens_share",
    "bigram_bits_per_byte": "bigram_bits_per_byte",
    "renyi_efficiency_2_5": "renyi_efficiency.2_5",
    "gini_languages": "gini.languages",
}
"""The names in metrics.json, and the measures that they mean. Missing measures are left out."""

_DIGITS = 6


def write_report(checked: Reported, params: Validate, published: Callable[[], Published]) -> None:
    """Writes data/report: report.json, metrics.json, the plots' data and gates.json. The same dataset and parameters give the same
    bytes in all but gates.json.

    `published` is called if a gate compares with the last published version. If a gate fails, report.html is written too, and then
    ValidationError is raised with a table of wanted and found values. Raises ParamsError for a missing reference, language column
    or measure of a gate.
    """
    root = checked.root
    report = collect(checked, params)
    measures = flat(report["measures"])
    _write_json(report, root / REPORT_FILE)
    _write_json({name: measures[of] for name, of in METRICS.items() if measures[of] is not None}, root / METRICS_FILE)
    for name, (columns, rows) in _plots(report).items():
        _write_csv(columns, rows, root / PLOTS_DIRECTORY / name)
    last = published() if any("published" in gate for gate in params.gates) else None
    outcomes = check_gates(params.gates, measures, last)
    _write_json([outcome.as_json() for outcome in outcomes], root / GATES_FILE)
    _tell(outcomes)
    if not all(outcome.holds for outcome in outcomes):
        write_page(root, [], published=last or published())
    refuse_broken(outcomes)


def _plots(report: Mapping[str, Any]) -> dict[str, tuple[Sequence[str], list[tuple[Any, ...]]]]:
    """The files of data/report/plots for `dvc plots`, with their columns and rows."""
    groups: dict[str, float] = {}
    for row in report["groups"]:  # those of the dataset come before those of the sample
        if row["tokenizer"] == OWN and row["bytes_per_token"] is not None:
            groups.setdefault(_group(row["kind"], row["name"]), row["bytes_per_token"])
    histogram = report["lengths"]["histogram"] if report["lengths"] else []
    return {
        "vocab_size.csv": (
            ("vocab_size", "bytes_per_token"),
            [(row["vocab_size"], row["bytes_per_token"]) for row in report["by_vocab_size"] or []],
        ),
        "ranks.csv": (
            ("log10_rank", "log10_count"),
            [(_log(rank["rank"]), _log(rank["count"])) for rank in report["ranks"] or []],
        ),
        "groups.csv": (
            ("bytes_per_token", "group"),
            [(bytes_per_token, group) for group, bytes_per_token in groups.items()],
        ),
        "lengths.csv": (
            ("documents", "tokens"),
            [(row["documents"], f"{row['from']}–{max(2 * row['from'] - 1, 0)}") for row in histogram],
        ),
    }


def _group(kind: str, name: str) -> str:
    return name if kind == "overall" else f"{kind}: {name}"


def _log(value: float) -> float:
    return round(math.log10(value), _DIGITS)


def _tell(outcomes: Sequence[GateResult]) -> None:
    if not outcomes or not all(outcome.holds for outcome in outcomes):
        return
    say(f"validate: {'the gate holds' if len(outcomes) == 1 else f'all {len(outcomes)} gates hold'}")
    for outcome in outcomes:
        if outcome.note.startswith("not compared"):
            say(f"validate: gate {outcome.gate!r}: {outcome.note}")


def _write_json(value: Any, path: Path) -> None:
    with write_atomic(path) as partial:
        partial.write_text(json.dumps(finite(value), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]], path: Path) -> None:
    with write_atomic(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
