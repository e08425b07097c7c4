"""Writes report.html: the report and the last build's seconds as one page without external resources."""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenmill
from tokenmill.errors import ValidationError
from tokenmill.layout import GATES_FILE, PAGE_FILE, REPORT_FILE, TABLES_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.json_files import read_json
from tokenmill.summary import StageSummary

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

    from tokenmill.dataset.manifest import Manifest
    from tokenmill.report import plots
    from tokenmill.report.document_changes import DocumentChanges
    from tokenmill.report.gate_results import Published

_KINDS = {"overall": "all documents", "source": "source", "script": "script", "lang": "language"}
_GROUPS_MAX = 15  # groups per kind in the plot; the table has all
_N_HALVES = 6  # rows of the table of vocabulary sizes, each half of the one before
_PARTS = {
    "reasoning": "reasoning",
    "content": "content",
    "tool_calls": "tool calls",
    "end": "end of the turn",
    "other": "trained, part unknown",
}
"""The words for the parts of answers in the order of the legend."""
_HEADING = re.compile(r'<h2 id="([^"]+)">([^<]+)</h2>')
_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\xa0": "⍽"}


def write_page(
    root: Path,
    summaries: Sequence[StageSummary],
    planned: Sequence[tuple[str, ...]] = (),
    published: "Published | None" = None,
) -> None:
    """Writes data/report/report.html of the project at `root` from report.json, gates.json and the dataset.

    `summaries`: those of the last build's stages. `planned`: rows that compare it with its plan (name, low, point, high, found,
    words). `published`: the last published version, whose measures stand beside those of this build, and whose documents are
    compared. Writes nothing without a report, or with one of an earlier tokenmill.
    """
    from markupsafe import Markup

    from tokenmill.artifacts.learned_with import LearnedWith
    from tokenmill.dataset.manifest import read_manifest
    from tokenmill.report import plots  # imports numpy, which `is_current` does not need
    from tokenmill.report.conversation_samples import SHOWN_TOKENS_MAX
    from tokenmill.report.example_documents import examples_in
    from tokenmill.report.gate_results import flat
    from tokenmill.report.measures import RARE

    report = _read(root / REPORT_FILE)
    if "measures" not in report:
        return
    groups, sizes = _groups(report), _sizes(report["by_vocab_size"] or [])
    gates = _read(root / GATES_FILE) if (root / GATES_FILE).exists() else []
    script = (Path(__file__).parent / "sort.js").read_text(encoding="utf-8")
    manifest = read_manifest(root / TOKENS_DIRECTORY)
    page = _template().render(
        name=root.resolve().name,
        digest=_digest(root),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        version=tokenmill.__version__,
        dataset_digest=manifest.digest,
        n_left_out_by_reason=manifest.n_dropped,
        to_look_at=_to_look_at(report, gates, planned),
        measured=flat(report["measures"]),
        published=published if published is not None and published.measures else None,
        since=_since(root, manifest, published),
        examples=examples_in(root, manifest),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        report=report,
        gates=gates,
        charts={name: Markup(svg) for name, svg in plots.drawn(_charts(report, groups)).items()},
        groups=groups,
        sizes=sizes,
        set_keys=[
            key
            for key in ("split", "source", "epoch")
            if any(file_set[key] is not None for file_set in report.get("sets") or [])
        ],
        summaries=summaries,
        planned=planned,
        rare=RARE,
        shown_tokens_max=SHOWN_TOKENS_MAX,
        learned_with=LearnedWith.model_validate(report.get("learned_with") or {}),
        trained_parts=_trained_parts(report.get("conversations")),
    )
    with write_atomic(root / PAGE_FILE) as partial:
        partial.write_text(page, encoding="utf-8")


def _since(
    root: Path, manifest: "Manifest", published: "Published | None"
) -> "tuple[str | None, DocumentChanges] | None":
    """The last published version, and what became of its documents; None where its document index is not on this machine, or one of
    the two cannot be read."""
    from tokenmill.dataset.manifest import read_manifest_file
    from tokenmill.dataset.tables import DOCUMENTS_FILE
    from tokenmill.report.document_changes import IndexedDocuments, document_changes

    if published is None or published.dataset is None:
        return None
    path, index = published.dataset
    try:
        before, now = (
            IndexedDocuments(read_manifest_file(path), index),
            IndexedDocuments(manifest, root / TABLES_DIRECTORY / DOCUMENTS_FILE),
        )
        return published.version, document_changes(before, now)
    except (ValidationError, OSError):
        return None


def _to_look_at(
    report: Mapping[str, Any], gates: Sequence[Mapping[str, Any]], planned: Sequence[tuple[str, ...]]
) -> list[tuple[str, str]]:
    """What may be wrong with the build: the section that shows it, and a few words."""
    chat = report.get("conversations") or {}
    n_special = sum(n for of in report["special_texts"].values() for n in of.values())
    findings = [
        ("gates", sum(not gate["holds"] for gate in gates), "gate does not hold", "gates do not hold"),
        ("left-out", report["documents_bad"], "document is in the quarantine", "documents are in the quarantine"),
        ("left-out", report["shards_damaged"], "file is damaged", "files are damaged"),
        ("special-texts", n_special, "text of a special token in the sample", "texts of special tokens in the sample"),
        ("conversations", chat.get("without_trained", 0), "conversation trains nothing", "conversations train nothing"),
        ("conversations", sum(chat.get("cut", {}).values()), "conversation is cut", "conversations are cut"),
        (
            "plan",
            sum(row[-1] == "outside" for row in planned),
            "planned quantity was wrong",
            "planned quantities were wrong",
        ),
    ]
    words = [(section, f"{n:,} {one if n == 1 else many}") for section, n, one, many in findings if n]
    if report.get("not_reached"):
        words.append(("vocabulary", "the vocabulary was not reached"))
    return words


def _headings(body: str) -> list[tuple[str, str]]:
    """The id and the words of each section."""
    return _HEADING.findall(body)


def _groups(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The groups of documents in the order of the page, the largest of each kind first, each with its row of the dataset, if that
    is known, and a row per tokenizer of the sample. Kinds with a single group are left out.

    Bytes per token of the sample stand beside those of the dataset only where they are compared with references."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in report["groups"]:
        of = rows.setdefault((row["kind"], row["name"]), [])
        is_sampled = row.get("of") != "dataset"  # reports of 0.3.0 have samples alone
        is_known = is_sampled and bool(of) and not report["references"]
        label = f"{row['tokenizer']}, sample" if is_sampled else row["tokenizer"]
        of.append({**row, "label": label, "bytes_per_token": None if is_known else row["bytes_per_token"]})
    groups = [
        {"key": kind, "kind": words, "name": "" if kind == "overall" else name, "rows": some}
        for kind, words in _KINDS.items()
        for (of, name), some in sorted(rows.items(), key=lambda one: -one[1][0]["n_bytes"])
        if of == kind
    ]
    n = Counter(group["key"] for group in groups)
    return [group for group in groups if group["key"] == "overall" or n[group["key"]] > 1]


def _sizes(rows: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Bytes per token at the largest vocabulary size and at halves of it; empty unless there are several sizes."""
    if len(rows) < 2:
        return {}
    last = rows[-1]["vocab_size"]
    halves = [min(rows, key=lambda row: abs(row["vocab_size"] - last / 2**i)) for i in range(_N_HALVES)]
    return {row["vocab_size"]: row["bytes_per_token"] for row in halves}


def _trained_parts(conversations: Mapping[str, Any] | None) -> dict[str, str]:
    """The parts of answers that the samples of conversations show, with their words."""
    samples = [] if conversations is None else conversations["samples"]
    shown = {part for sample in samples for side in sample["sides"] for _, part in side["runs"]}
    return {part: words for part, words in _PARTS.items() if part in shown}


def _charts(report: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> "dict[str, plots.Chart]":
    """The charts that this report has data for, by their names in the template."""
    from tokenmill.report import plots

    first = [one for kind in _KINDS for one in [one for one in groups if one["key"] == kind][:_GROUPS_MAX]]
    points = [
        {
            "group": f"{group['kind']}: {group['name']}".removesuffix(": "),
            "tokenizer": row["label"],
            "bytes_per_token": row["bytes_per_token"],
        }
        for group in first
        for row in group["rows"]
        if row["bytes_per_token"] is not None
    ]
    charts = {}
    if points:
        charts["groups"] = plots.groups(points, list(dict.fromkeys(point["tokenizer"] for point in points)))
    if _sizes(report["by_vocab_size"] or []):
        charts["vocab_size"] = plots.by_vocab_size(report["by_vocab_size"])
    if report["ranks"]:
        charts["ranks"] = plots.ranks(report["ranks"])
    if report["coverage"]:
        charts["coverage"] = plots.coverage(report["coverage"])
    if report["lengths"] and report["lengths"]["histogram"]:
        charts["lengths"] = plots.lengths(report["lengths"]["histogram"])
    return charts


def _template() -> "Template":
    """The template of the page. It escapes values, and shows control characters as their codes."""
    from jinja2 import Environment, FileSystemLoader

    from tokenmill_reader.description import words_of_weight
    from tokenmill_reader.shown import size

    jinja = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    jinja.filters |= {
        "headings": _headings,
        "number": _number,
        "percent": _percent,
        "size": size,
        "token": _token,
        "weight": words_of_weight,
    }
    return jinja.get_template("report.html.jinja")


def _printable(value: Any) -> Any:
    """The value, if it is a text of others with control characters as their codes."""
    if type(value) is not str:
        return value
    return "".join(one if one.isprintable() or one in "\n\t" else f"\\u{ord(one):04x}" for one in value)


def _number(value: float | int | None, digits: int = 3) -> str:
    """The number with commas; – for None."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def _percent(share: float | None, digits: int = 1) -> str:
    """The share in percent; – for None."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def _token(text: str) -> "Markup":
    """A token as a chip, with blanks made visible."""
    from markupsafe import Markup, escape

    cells = (
        Markup(f"<i>{_VISIBLE[character]}</i>") if character in _VISIBLE else escape(_printable(character))
        for character in text
    )
    return Markup('<bdi class="t">{}</bdi>').format(Markup("").join(cells))


def is_current(root: Path) -> bool:
    """Whether report.html exists and belongs to the present report.json."""
    try:
        with (root / PAGE_FILE).open(encoding="utf-8") as file:
            return f'content="{_digest(root)}"' in file.read(1000)
    except (OSError, UnicodeDecodeError):
        return False


def _digest(root: Path) -> str:
    return hashlib.sha256((root / REPORT_FILE).read_bytes()).hexdigest()


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}
