"""Python processes that we start import nothing of the folder in which somebody happens to work."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.document_sets import documents_dataset
from tests.builders.prefect_server import Server
from tests.builders.small_tokenizer import small_tokenizer
from tests.conftest import REPOSITORY, Project
from tokenmill.features.conform.program.write import write_program
from tokenmill_reader.child_python import command_of
from tokenmill_reader.manifest import read_content

TRAPS = ("argparse", "json", "multiprocessing", "numpy", "obstore", "pyarrow", "runpy", "tempfile", "threading")

STARTS = {
    "tokenmill_reader.fetch_process": "import tokenmill; tokenmill.open('file://{dataset}', cache='{cache}')[0]",
    "tokenmill.report.drawing": "from tokenmill.report.drawing import drawn; assert '<svg' in drawn([{{'mark': 'bar'}}], {{}})[0]",
    "tokenmill.chat.isolated": "from tokenmill.chat.isolated import _Process; "
    "made = _Process(); made.process.communicate(); assert made.process.returncode == 0",
    "tokenmill.orchestration.embedded": "import subprocess; from tokenmill_reader.child_python import command_of; "
    "assert subprocess.run(command_of('tokenmill.orchestration.embedded', '0'), stdin=-3).returncode == 0",
    "tokenmill": "import subprocess; from tokenmill_reader.child_python import command_of; "
    "assert b'refresh' in subprocess.run(command_of('tokenmill', '--help'), stdout=-1).stdout",
}
"""A program for each module that runs in a process of its own, which starts it."""


def set_traps(folder: Path) -> None:
    """Puts modules there that leave a file when they are imported."""
    folder.mkdir(exist_ok=True)
    for name in TRAPS:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('{name} ')\n", encoding="utf-8")


@pytest.mark.parametrize("module", STARTS)
def test_a_process_imports_nothing_of_the_working_folder(tmp_path: Path, module: str) -> None:
    set_traps(tmp_path / "here")
    made = documents_dataset(tmp_path / "made/tokens", [[[1, 2]]], ["megatron"])
    digest = read_content(made)["digest"][:16]
    (tmp_path / digest).symlink_to(made.parent)
    program = tmp_path / "program.py"
    program.write_text(STARTS[module].format(dataset=tmp_path / digest, cache=tmp_path / "cache"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path / "here",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "here/ran").exists()


def test_a_folder_of_the_path_stays_unless_it_is_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/elsewhere", str(REPOSITORY)])
    assert f"sys.path[:] = {['/elsewhere', str(REPOSITORY)]};" in command_of("x")[2]
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(sys, "path", ["", "/elsewhere"])
    assert f"sys.path[:] = {[str(REPOSITORY), '/elsewhere']};" in command_of("x")[2]


def test_every_process_of_python_is_started_by_that_command() -> None:
    # conform.py is a file, and the commands of a step are the project's.
    allowed = {"child_python.py", "compare.py", "own_step.py"}
    for path in (path for room in ("tokenmill", "reader") for path in (REPOSITORY / room).rglob("*.py")):
        names = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Attribute)]
        if any(node.attr == "executable" for node in names):
            assert path.name in allowed, path


@pytest.mark.parametrize("options", [[], ["-P"], ["-I"]])
def test_conform_imports_nothing_beside_it(tmp_path: Path, options: list[str]) -> None:
    folder = small_tokenizer(tmp_path / "tokenizer")
    write_program(folder)
    set_traps(folder)
    command = [sys.executable, *options, str(folder / "conform.py"), "--with", "kitoken"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "kitoken" in done.stdout, done.stderr
    assert not (folder / "ran").exists()


@pytest.mark.slow
def test_dask_workers_import_nothing_of_the_working_folder(project: Project, server: Server) -> None:
    set_traps(project.root)
    project.set(run__engine="dask", run__workers=1)
    project.build(**server.environment)
    assert not (project.root / "ran").exists()
