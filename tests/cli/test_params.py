"""`tokenmill params` lists the keys of params.yaml, or explains one, in any width."""

import json
from pathlib import Path

import pytest

from tests.builders.teams import cli
from tests.conftest import Project
from tokenmill.project.parameters import keys, sections


@pytest.mark.parametrize("columns", [80, 120])
def test_all_keys_are_listed_by_section_in_the_width_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = cli(Project(tmp_path), "params").stdout.splitlines()
    assert [line.split(":")[0] for line in lines if line and line.partition(":")[0] in sections()] == list(sections())
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert listed == [name.partition(".")[2] for name in keys() if "." in name]
    assert max(map(len, lines)) <= columns
    [line] = [line for line in lines if line.startswith("  vocab_size ")]
    assert line.split()[1:4] == ["16384", "all", "tokens:"]


def test_a_key_a_section_and_json_are_what_the_reference_says(tmp_path: Path) -> None:
    here = Project(tmp_path)
    page = cli(here, "params", "encode.pack").stdout
    assert page.startswith("encode.pack: packed sequences; null: documents.")
    for line in ("type        the keys below, or null", "default     null", "runs again  encode, validate"):
        assert f"\n  {line}\n" in page
    assert "\n  example     {length: 2048, mode: best_fit}\n" in page
    assert "\n  length  –      the tokens of a sequence\n" in page
    assert "none: it must be given" in cli(here, "params", "encode.pack.length").stdout
    section = cli(here, "params", "validate").stdout
    assert section.startswith("validate: ") and " One that does not hold fails the build" in " ".join(section.split())
    found = json.loads(cli(here, "params", "encode.shuffle", "--json").stdout)["result"]
    assert list(found) == ["encode.shuffle", "encode.shuffle.seed", "encode.shuffle.epochs"]
    assert found["encode.shuffle.epochs"]["default"] == "1" and found["encode.shuffle.seed"]["default"] is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pack", " Did you mean encode.pack?"),
        ("license", " Did you mean source.license or sources.NAME.license or publish.license?"),
        ("encode.pak", " Did you mean encode.pack?"),
        ("encod", " Did you mean encode?"),
        ("zzz", ""),
    ],
)
def test_an_unknown_name_is_one_error_with_near_names(tmp_path: Path, name: str, hint: str) -> None:
    done = cli(Project(tmp_path), "params", name)
    assert done.returncode == 2
    assert f"params: there is no key {name!r}.{hint} `tokenmill params` lists all keys." in done.stderr
