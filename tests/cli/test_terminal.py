"""A terminal obeys nothing that documents, files and others say, and every encoding can take what is printed."""

import json
import os
import runpy
from pathlib import Path

import pytest

from tests.builders.processes import ended
from tests.conftest import Project
from tokenmill.cli.main import _of_project
from tokenmill.errors import CorpusError, ProjectCodeError
from tokenmill.terminal import as_shown

ODD = "\x1b]0;title\x07\nright\u202e"
SHOWN = r"\x1b]0;title\x07\nright\u202e"


def test_an_id_and_a_file_name_are_printed_in_one_line_with_escapes(project: Project) -> None:
    row = json.dumps({"id": ODD, "text": "the cat and the dog"})
    (project.root / "data/raw" / f"{ODD}.jsonl").write_text(f"{row}\n", encoding="utf-8")
    said = project.build("--verbose")
    assert f"{SHOWN}.jsonl" in said.stderr
    located = project.cli("locate", "--id", ODD)
    assert located.returncode == 0 and SHOWN in located.stdout
    assert json.dumps(ODD) in project.cli("locate", "--id", ODD, "--json").stdout
    (project.root / "data/raw" / f"{ODD}.jsonl").write_text("{\n", encoding="utf-8")
    later = [project.cli(*command) for command in (["verify"], ["build"], ["status", "-v"])]
    assert all(one.returncode != 0 for one in later)
    for output in [said.stderr, located.stdout, *(one.stdout + one.stderr for one in later)]:
        assert "\x1b" not in output and "\u202e" not in output and "\nright" not in output


def test_the_lines_of_an_error_are_its_own() -> None:
    error = CorpusError(["two are bad:", f"  {ODD}.jsonl: empty"])
    assert len(error.lines) == 2
    assert str(error) == f"two are bad:\n  {ODD}.jsonl: empty"


@pytest.mark.parametrize(
    "text", ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f468\u200d\U0001f469", "e\u0301 \u65e5\u672c"]
)
def test_words_and_emoji_with_joiners_are_printed_as_they_are(text: str) -> None:
    assert as_shown(text) == text


def test_an_error_of_a_flow_keeps_its_lines(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").touch()
    path = tmp_path / "flows/build.py"
    path.parent.mkdir()
    path.write_text(r"raise ValueError('2 errors\nname: too long')", encoding="utf-8")
    with pytest.raises(ValueError, match="2 errors") as error:
        runpy.run_path(str(path))
    found = _of_project(error.value)
    assert isinstance(found, ProjectCodeError)
    assert found.lines == [
        f"{path}, line 1: ValueError: 2 errors",
        "name: too long. This is code of your project.",
        "Correct it, or what it reads.",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_that_lacks_characters_is_no_traceback(
    project: Project, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("é東.jsonl", ["the cat"])
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    for command in ("build", "info", "status"):
        done = ended(project.root, command)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
        assert done.stdout.decode(encoding)
    assert b"..." in ended(project.root, "info").stdout


@pytest.mark.slow
def test_a_build_ends_well_without_standard_streams(project: Project) -> None:
    def close() -> None:
        for number in (0, 1, 2):
            os.close(number)

    assert ended(project.root, "build", stdin=None, stdout=None, stderr=None, preexec_fn=close).returncode == 0
    assert ended(project.root, "build", "--force", stdout=None, preexec_fn=lambda: os.close(1)).returncode == 0
    assert (Path(project.root) / "data/tokens/manifest.json").is_file()
