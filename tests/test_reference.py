"""The reference pages agree with the code, and the figures with the records of benchmarks."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks import figure, record
from docs.generated import commands, contents, errors, figures, pages, parameters
from docs.generated.doctests import fenced
from docs.generated.tables import code, table
from tests.conftest import REPOSITORY, Project
from tokenmill.cli.main import make_parser
from tokenmill.config.lockfile import Lock, Pin
from tokenmill.error_pages import error_pages
from tokenmill.project.parameters import keys, stages_after

RECORDS = sorted(record.DIRECTORY.glob("*.json"))


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    page = commands.page()
    for name, parser in commands.commands_of(make_parser()).items():
        assert f"## tokenmill {name}\n" in page
        for action in parser._actions:
            shown = action.option_strings or [str(action.metavar or action.dest)]
            assert [one for one in shown if f"`{one}" not in page] == [], name


def test_the_page_of_parameters_has_every_key_with_its_value_and_meaning() -> None:
    page = parameters.page()
    for name, key in keys().items():
        section, _, rest = name.partition(".")
        assert f"| `{rest or section}` |" in page.split(f"## {section}\n")[1]
        assert key.meaning and key.example, name
    assert "| `data/raw/**/*` |" in page


def test_a_parameter_runs_the_stages_that_read_it_and_those_behind_them() -> None:
    everything = ("count", "train-vocab", "encode", "validate")
    assert stages_after("count.pattern") == everything
    assert stages_after("train_vocab.vocab_size") == everything[1:]
    assert stages_after("encode.formats") == everything[2:]
    assert stages_after("validate.sample_documents") == everything[3:]
    assert stages_after("run.workers") == ()


def test_each_error_code_has_a_section_with_an_anchor() -> None:
    page = errors.codes()
    assert error_pages()
    for number, one in error_pages().items():
        assert f"### {number}\n" in page
        assert f"[{number}](#{number.lower()})" in page
        assert one.title[1:] in page and one.meaning in page and one.advice in page


def test_the_parts_of_pages_are_as_the_code_makes_them() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in pages.paths()}
    old = [path.name for path, text in texts.items() if text != pages.filled(text)]
    assert old == [], "run: .venv/bin/python -m docs.generated.pages"
    marks = re.findall(r"^<!-- generated: ([\w-]+) -->$", "".join(texts.values()), flags=re.MULTILINE)
    assert sorted(marks) == sorted(pages.PARTS)


def test_every_guide_is_in_the_contents_with_a_sentence_that_is_short() -> None:
    found = {path for group in contents.groups() for path in group.pages.values()}
    guides = {path.relative_to(REPOSITORY / "docs").as_posix() for path in (REPOSITORY / "docs/guides").glob("*.md")}
    assert guides <= found
    assert [path for path in guides if not 20 < len(contents.first_sentence(path)) < 200] == []


def test_a_pipe_ends_no_cell() -> None:
    assert table(["a"], [["b | " + code("<|c|>")]]).splitlines()[2] == "| b &#124; <code>&lt;&#124;c&#124;&gt;</code> |"


def test_examples_of_docstrings_become_code() -> None:
    assert list(fenced(["a", ">>> f()", "1", "", "b", ">>> g()"])) == [
        "a", "```pycon", ">>> f()", "1", "```", "", "b", "```pycon", ">>> g()", "```",
    ]  # fmt: skip


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_has_its_schema(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found.keys() == {"schema_version", "date", "machine", "sections"}
    assert found["schema_version"] == record.SCHEMA_VERSION
    assert path.name == f"{found['date']}-{record.slug_of(found['machine']['cpu'])}.json"
    assert found["machine"].keys() == record.machine_of().keys()
    named = {"started", "commit", "is_dirty", "load_at_start", "load_at_end", "arguments", "versions", "cells"}
    for section in found["sections"].values():
        assert section.keys() == named
        assert section["cells"]
        for cell in section["cells"]:
            _check_cell(cell)


def _check_cell(cell: dict[str, Any]) -> None:
    runs = {key: value for key, value in cell.items() if key.startswith("runs_")}
    assert bool(runs) != (bool({"failed", "n_wrong"} & cell.keys()) or cell.get("answer") == "other"), cell
    assert cell.get("answer", "same") in ("same", "not compared", "other")
    for key, values in runs.items():
        assert key.endswith(("_s", "_mb_per_s", "_peak_mb", "_ratio")), key
        assert all(isinstance(one, float | int) and one >= 0 for one in values)


def test_a_section_replaces_that_of_the_same_name_and_no_other(tmp_path: Path) -> None:
    def section(name: str, n: int) -> dict[str, Any]:
        return {"name": name, "started": "2026-11-24 10:00:00", "cells": [{"runs_s": [n, 0.5]}]}

    for name, n in (("train", 1), ("encode", 2), ("train", 3)):
        path = record.keep(section(name, n), tmp_path)
    found = record.newest(tmp_path)
    assert path.name.startswith("2026-11-24-")
    assert {name: one["cells"][0]["runs_s"][0] for name, one in found.items()} == {"encode": 2, "train": 3}
    assert '"runs_s": [3, 0.5]' in path.read_text(encoding="utf-8")


def test_the_speed_figures_are_those_of_the_record() -> None:
    for name, svg in figure.drawn(record.newest()["encode"]).items():
        assert (figure.ASSETS / name).read_text(encoding="utf-8") == svg, "run python -m benchmarks.figure"


def test_a_figure_says_median_and_range() -> None:
    assert figures._range([3.0, 1.0, 2.0]) == "2 (1–3)"
    assert figures._range([1234.5]) == "1,234"


def test_the_page_of_files_has_every_file_key_and_column_of_a_build(project: Project) -> None:
    page = (REPOSITORY / "docs/reference/files.md").read_text(encoding="utf-8")
    project.build()
    data = project.root / "data"
    made = [path for name in ("counts", "tokenizer", "report", "quarantine") for path in (data / name).iterdir()]
    assert [
        path.name
        for path in made
        if path.name not in (*page.split("`"), ".gitignore") and f"{path.name} {{" not in page
    ] == []
    files = [path for path in data.rglob("*.json") if "raw" not in path.parts]
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in files if path.name not in FOREIGN]
    columns = {name for path in data.rglob("*.parquet") for name in pq.read_schema(path).names}
    unknown = {key for document in documents for key in _keys_of(document)} | columns
    unknown |= Lock.model_fields.keys() | Pin.model_fields.keys()
    assert [key for key in sorted(unknown) if f"`{key}`" not in page] == []
    state = [path.name for path in (project.root / ".tokenmill").iterdir()]
    assert [name for name in state if f"`{name}" not in page] == []


FOREIGN = ("tokenizer.json", "tokenizer_config.json")  # formats of others
_NAMES = {
    *("special_tokens", "scripts", "samples", "weights", "code", "engines"),
    *("source", "script", "lang", "references", "special_texts", "percentiles"),
}  # of objects whose keys are data


def _keys_of(document: Any) -> Iterator[str]:
    if isinstance(document, list):
        for one in document[:5]:
            yield from _keys_of(one)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key not in _NAMES:
                yield from _keys_of(value)
