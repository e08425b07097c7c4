"""A number has one value, wherever it stands: all places are walked, grouped by name, and compared."""

import csv
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.conftest import Project
from tokenmill.report import sample
from tokenmill.report.collect import OWN
from tokenmill.report.gate_results import flat
from tokenmill.report.page import _KINDS, _number, _percent
from tokenmill.report.write import METRICS
from tokenmill_reader.shown import size

_MEASURES = ("bytes_per_token", "tokens_per_word", "words_whole_share")
_PAGE = {
    "documents": "documents",
    "of text": "text_bytes",
    "tokens": "tokens",
    "bytes per token": "bytes_per_token.overall",
    "tokens per word, sample": "tokens_per_word.overall",
    "bigram bits per byte, sample": "bigram_bits_per_byte",
    "Rényi efficiency, α = 2": "renyi_efficiency.2",
    "Rényi efficiency, α = 2.5": "renyi_efficiency.2_5",
    "Gini over languages": "gini.languages",
    "Gini over scripts": "gini.scripts",
    "Gini over sources": "gini.sources",
}
"""The words of report.html and of the cards for measures."""


class Stated(NamedTuple):
    """A number, or its text for people, that stands under a name in a place."""

    place: str
    name: str
    value: Any


def in_files(project: Project) -> Iterator[Stated]:
    """The numbers in files for programs, and in what `tokenmill info` says."""

    def read(name: str) -> Any:
        return json.loads((project.root / "data" / name).read_text(encoding="utf-8"))

    report, card = read("report/report.json"), read("tokenizer/card.json")
    info = json.loads(project.cli("info", "--json").stdout)["result"]
    for name, value in flat(report["measures"]).items():
        yield Stated("report.json, measures", name, value)
    for place, found in (("report.json", report), ("info", info), ("counts.json", read("counts/report.json"))):
        for name, value in found.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield Stated(place, "bytes_per_token.overall" if name == "bytes_per_token" else name, value)
    for row in report["groups"]:
        if row["tokenizer"] == OWN:
            of = row["kind"] if row["kind"] == "overall" else f"{row['kind']}.{row['name']}"
            is_sampled = row["of"] == "sample" and row["kind"] in ("overall", "source")
            for name in _MEASURES:
                if row[name] is not None and not (is_sampled and name == "bytes_per_token"):
                    yield Stated(f"report.json, groups of the {row['of']}", f"{name}.{of}", row[name])
    for name, of in METRICS.items():
        yield Stated("metrics.json", of, read("report/metrics.json").get(name))
    for gate in read("report/gates.json"):
        yield Stated("gates.json", gate["gate"].partition(" ")[0], gate["found"])
    yield Stated("report.json, lengths", "documents", report["lengths"]["n_documents"])
    yield Stated(
        "report.json, by_vocab_size", "bytes_per_token.overall", report["by_vocab_size"][-1]["bytes_per_token"]
    )
    yield Stated("report.json, vocabulary", "unused_tokens", report["vocabulary"]["unused"]["n_tokens"])
    yield Stated("card.json", "vocab_size", card["vocab_size"])
    yield Stated("card.json", "pretokens", card["training"]["n_pretokens"])
    yield Stated("card.json", "pretokens_distinct", card["training"]["n_pretokens_distinct"])
    with (project.root / "data/report/plots/groups.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield Stated(
                "groups.csv", f"bytes_per_token.{row['group'].replace(': ', '.')}", float(row["bytes_per_token"])
            )


def on_pages(project: Project) -> Iterator[Stated]:
    """The texts of numbers in report.html, in the cards, and in what `tokenmill info` prints."""
    page = (project.root / "data/report/report.html").read_text(encoding="utf-8")
    for value, words in re.findall(r"<div><b>(.*?)</b><span>(.*?)</span></div>", page):
        yield Stated("report.html, first figures", _PAGE[words], value)
    rows = [
        re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    ]
    kinds, kind, group = {words: kind for kind, words in _KINDS.items()}, "", ""
    for cells in rows:
        if len(cells) == 7 and cells[2].startswith(OWN):
            kind, group = (kinds[cells[0]], cells[1]) if cells[0] else (kind, group)
            for name, value in zip(_MEASURES, cells[4:], strict=True):
                yield Stated(f"report.html, {cells[2]}", ".".join(filter(None, (name, kind, group))), value)
        elif len(cells) == 3 and cells[0] in _PAGE:
            yield Stated("report.html, measures", _PAGE[cells[0]], cells[1])
    [(n, share)] = re.findall(r"([\d,]+) do not occur in the dataset \((.*?) of learned", page)
    yield Stated("report.html, vocabulary", "unused_tokens", n)
    yield Stated("report.html, vocabulary", "unused_tokens_share", share)
    for card in ("tokens", "tokenizer"):
        text = (project.root / f"data/{card}/README.md").read_text(encoding="utf-8")
        for words, value in re.findall(r"^\| (documents|tokens) \| ([\d,]+) \|$", text, re.MULTILINE):
            yield Stated(f"{card}/README.md", words if card == "tokens" else "vocab_size", value)
    printed = project.cli("info").stdout
    [(n_tokens, per_token)] = re.findall(r"tokens +([\d,]+), ([\d.]+) bytes of text a token", printed)
    yield Stated("info, printed", "tokens", n_tokens)
    yield Stated("info, printed", "bytes_per_token.overall", per_token)


def forms(value: float) -> set[str]:
    """How a page may show a number."""
    return {_number(value, digits) for digits in (1, 3, 4)} | {_percent(value, n) for n in (1, 2)} | {size(value)}


@pytest.mark.slow
def test_a_number_has_one_value_wherever_it_stands(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "TEXT_BYTES_MAX", 200)  # so that the sample differs from the dataset
    monkeypatch.setattr(sample, "_PIECE_BYTES_MIN", 60)
    for name, texts in (
        ("web/1.jsonl", ["the cat sat on the mat"] * 9 + ["zyxwvutsrq 0123456789"] * 9),
        ("web/2.jsonl", ["кот и пёс сидят на мельнице"] * 5),
        ("code/1.jsonl", ["def f(x): return x"] * 7 + ["naïve café – 東京"] * 7),
    ):
        project.write(name, texts)
    project.set(run__report_page=True, source__glob="data/raw/**/*.jsonl")
    project.build()
    measures = flat(json.loads((project.root / "data/report/report.json").read_text(encoding="utf-8"))["measures"])
    project.set(validate__gates=[f"{name} >= 0" for name, value in measures.items() if value is not None])
    project.build()
    stated: dict[str, list[Stated]] = {}
    for one in in_files(project):
        if one.value is not None:
            stated.setdefault(one.name, []).append(one)
    assert {name for name in measures if measures[name] is not None} <= stated.keys()
    assert [some for some in stated.values() if len({one.value for one in some}) > 1] == []
    shown = [one for one in on_pages(project) if one.value != "–"]
    assert [one for one in shown if one.value not in forms(stated[one.name][0].value)] == []
    assert len({one.name for one in shown}) > 20
    assert measures["bytes_per_token.source.web"] != measures["bytes_per_token.source.code"]
