"""Surroundings in which no project can be built are named in one line."""

import json
import os
import resource
from pathlib import Path

import pytest

from tests.builders.processes import ended
from tests.builders.teams import build
from tests.conftest import Project, make_project
from tokenmill.cli.answer import message_of
from tokenmill.errors import code_of


@pytest.mark.slow
def test_a_path_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    project = make_project(tmp_path / os.fsdecode(b"caf\xe9"))
    for command in (["build"], ["status"], ["plan"], ["init", "."]):
        done = ended(project.root, *command)
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert line.startswith(b"tokenmill: error[TM100]: ") and b"Rename the folder." in line


@pytest.mark.parametrize("command", [["init"], ["verify"], ["info"], ["build", "--params"], ["verify", "--json"]])
def test_an_argument_that_is_not_utf8_is_named(tmp_path: Path, command: list[str]) -> None:
    done = ended(tmp_path, *command, os.fsdecode(b"caf\xe9"))
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(b"tokenmill: error[TM001]: argument 'caf\\udce9': expected UTF-8.")
    if "--json" in command:
        assert json.loads(done.stdout)["error"]["code"] == "TM001"
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", [b"caf\xe9.jsonl", b".caf\xe9.jsonl"])
def test_a_file_whose_name_is_not_utf8_is_named(project: Project, name: bytes) -> None:
    build(project)
    folder = os.fsencode(project.root / "data/raw")
    Path(os.fsdecode(os.path.join(folder, name))).write_text("{}\n", encoding="utf-8")  # noqa: PTH118
    for command in ("build", "status"):
        done = ended(project.root, command)
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert b"\\udce9.jsonl" in line and b"valid UTF-8" in line and b"Rename the file" in line


def test_a_process_that_may_have_too_little_memory_is_told_so(project: Project) -> None:
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (400_000 << 10, 400_000 << 10))  # noqa: E731
    for command in ("build", "status", "plan"):
        done = ended(project.root, command, preexec_fn=limit)
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert line.startswith(
            b"tokenmill: error[TM110]: memory: this process may have 409.6 MB of addresses (ulimit -v)"
        )


def test_memory_that_the_system_refuses_is_no_defect() -> None:
    error = MemoryError("Unable to allocate 8 GiB for an array")
    assert code_of(error) == "TM110"
    assert "the system gave no more to this process (Unable to allocate 8 GiB for an array)" in message_of(error)


@pytest.mark.parametrize("n_letters", [242, 249])
def test_a_name_that_is_too_long_is_refused_before_the_work(project: Project, n_letters: int) -> None:
    project.write(f"{'x' * n_letters}.jsonl", ["the cat"])
    for command in ("build", "status"):
        done = project.cli(command)
        assert done.returncode == 2
        assert f"with a name of {n_letters + 14} bytes; allowed: 255" in done.stderr
    assert project.outputs() == {}


def test_a_file_and_a_folder_that_would_have_one_name_are_both_named(project: Project) -> None:
    project.write("a.jsonl.parquet/c.jsonl", ["the cat"])
    done = project.cli("build", "--json")
    assert done.returncode == 2
    message = json.loads(done.stdout)["error"]["message"]
    assert (
        "data/raw/a.jsonl.parquet/c.jsonl: would be encoded into the folder a.jsonl.parquet, but data/raw/a.jsonl"
        in message
    )
    assert project.outputs() == {}


def test_a_folder_with_the_name_of_a_file_of_ours_is_a_folder(project: Project) -> None:
    project.write("manifest.json/c.jsonl", ["the cat"])
    project.build()
    assert project.cli("verify").returncode == 0


def test_an_error_does_not_show_what_a_file_holds(tmp_path: Path) -> None:
    (tmp_path / "secret.tiktoken").write_text("machine host login me password open-sesame\n", encoding="utf-8")
    done = ended(tmp_path, "check", "secret.tiktoken", "--pattern", "gpt2")
    assert done.returncode == 2 and b"open-sesame" not in done.stderr and b"line 1: expected a token" in done.stderr
