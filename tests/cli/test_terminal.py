"""A terminal obeys nothing that documents, files and others say, and every encoding can take what is printed."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.document_sets import documents_dataset
from tests.builders.processes import ended
from tests.builders.small_tokenizer import small_tokenizer
from tests.conftest import REPOSITORY, Project
from tokenmill.cli.main import _of_project
from tokenmill.errors import CorpusError, ProjectCodeError
from tokenmill.features.conform.program.write import write_program
from tokenmill_reader.shown import as_shown

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
    assert str(error) == f"two are bad:\n  {as_shown(ODD)}.jsonl: empty"  # also in a traceback


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


def odd_dataset(folder: Path) -> Path:
    """A dataset with a file of an odd name, and a manifest that says that an odd program made it."""
    made = documents_dataset(folder / ODD, [[[1, 2]]], ["megatron"])
    (made / f"{ODD}.bin").touch()
    values = json.loads((made / "manifest.json").read_bytes())
    (made / "manifest.json").write_text(json.dumps({**values, "engine": f"{ODD}\x9b1m"}), encoding="utf-8")
    return made


def odd_conform(folder: Path) -> Path:
    """conform.py beside a tokenizer whose golden.json gives odd names to texts, with ids that no library gives."""
    made = small_tokenizer(folder / "tokenizer")
    values = json.loads((made / "golden.json").read_bytes())
    vectors = [{**one, "name": ODD, "ids": [0]} for one in values["vectors"]]
    (made / "golden.json").write_text(json.dumps({**values, "vectors": vectors}), encoding="utf-8")
    return write_program(made)


PROGRAMS = {
    "check": lambda folder: ["-m", "tokenmill_reader", "check", odd_dataset(folder)],
    "check without a dataset": lambda folder: ["-m", "tokenmill_reader", "check", folder / ODD],
    "info": lambda folder: ["-m", "tokenmill_reader", "info", odd_dataset(folder)],
    "info --json": lambda folder: ["-m", "tokenmill_reader", "info", "--json", odd_dataset(folder)],
    "conform.py": lambda folder: [odd_conform(folder), "--with", "tiktoken"],
    "check --against": lambda folder: ["-m", "tokenmill", "check", folder / ODD, "--against", folder],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_that_is_shipped_prints_what_a_terminal_obeys(tmp_path: Path, program: str) -> None:
    command = [sys.executable, *map(str, PROGRAMS[program](tmp_path))]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode()
    assert "title" in said and "Traceback" not in said
    assert not any(odd in said for odd in ("\x1b", "\x9b", "\nright", "\u202e"))
