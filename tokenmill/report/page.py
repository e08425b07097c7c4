"""Writes report.html: the report and the last build's seconds as one page without external resources."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenmill.layout import GATES_FILE, PAGE_FILE, REPORT_FILE
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.json_files import read_json
from tokenmill.summary import StageSummary

_MARK = '<meta name="tokenmill-report" content="'


def write_page(root: Path, summaries: Sequence[StageSummary], planned: Sequence[tuple[str, ...]] = ()) -> None:
    """Writes data/report/report.html of the project at `root` from report.json and gates.json.

    `summaries`: those of the last build's stages. `planned`: rows that compare it with its plan (name, low, point, high, found,
    words). Writes nothing without a report, or with one of an earlier tokenmill.
    """
    from tokenmill.report import (
        conversations,
        file_sets,
        plots,
        sections,
        vocabulary,
    )  # imports numpy, which `is_current` does not need
    from tokenmill.report.html import PAGE, escaped

    report = _read(root / REPORT_FILE)
    if "measures" not in report:
        return
    gates = _read(root / GATES_FILE) if (root / GATES_FILE).exists() else []
    body = "\n".join(
        [
            sections.figures(report),
            sections.gates(gates),
            sections.groups(report),
            vocabulary.vocab_size(report),
            sections.quality(report),
            vocabulary.vocabulary(report),
            vocabulary.panel(report),
            conversations.section(report),
            sections.documents(report),
            file_sets.section(report),
            sections.build(report, summaries, planned),
        ]
    )
    content = PAGE.format(
        mark=f'{_MARK}{_digest(root)}">',
        title=escaped(f"tokenmill: report of {root.resolve().name}"),
        body=plots.drawn(body),
    )
    with write_atomic(root / PAGE_FILE) as partial:
        partial.write_text(content, encoding="utf-8")


def is_current(root: Path) -> bool:
    """Whether report.html exists and belongs to the present report.json."""
    try:
        with (root / PAGE_FILE).open(encoding="utf-8") as file:
            return f'{_MARK}{_digest(root)}">' in file.read(1000)
    except (OSError, UnicodeDecodeError):
        return False


def _digest(root: Path) -> str:
    return hashlib.sha256((root / REPORT_FILE).read_bytes()).hexdigest()


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}
