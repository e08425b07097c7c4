"""A step of the project's own that fails: its error names it, and its previous outputs are as they were."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from tokenmill.errors import ProjectCodeError
from tokenmill.pipeline.alone import alone
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.start import start

CODE = """
from pathlib import Path
from tokenmill.errors import CorpusError, DamagedError
from tokenmill.tokenizer.tokenizer import Tokenizer

def step(build):
    out = build.root / "data/own"
    out.mkdir()
    (out / "words.txt").write_text(how)
    (build.root / "data/own.json").write_text(how)
    eval_(build)
"""
FAILURES = {
    "ValueError: no": "raise ValueError('no')",
    "FileNotFoundError: [Errno 2]": "open('/nowhere/x')",
    "DamagedError: x.jsonl is not whole": "raise DamagedError('x.jsonl is not whole.')",
    "TokenizerError": "Tokenizer.load(build.root / 'nowhere')",
    "SystemExit: 3": "raise SystemExit(3)",
}


@pytest.fixture
def own(project: Project) -> Project:
    """A project with a step `own` that has two outputs."""
    with project.edited("dvc.yaml") as pipeline:
        outs = ["data/own", {"data/own.json": {"cache": False}}]
        pipeline["stages"]["own"] = {"cmd": "python -m tasks.own", "deps": ["data/raw"], "outs": outs}
    return project


def step(project: Project, how: str, last: str) -> tuple[Callable[[Build], Any], Path]:
    """The step as code of the project, with `last` as its last line, and the file that it is in."""
    path = project.root / "tasks/own.py"
    path.write_text(CODE.replace("how", repr(how)).replace("eval_(build)", last), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("own", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.step, path


def run(project: Project, how: str, last: str = "pass") -> Path:
    """Runs the step anew. Gives its file."""
    does, path = step(project, how, last)
    with alone(project.root, wait=False):
        start(project.root / "params.yaml", "own", True, False).stage("own", does)
    return path


def outputs(project: Project) -> list[str]:
    assert not list((project.root / "data").glob("*.partial"))
    return read(project)


def read(project: Project) -> list[str]:
    return [(project.root / name).read_text(encoding="utf-8") for name in ("data/own/words.txt", "data/own.json")]


def test_any_error_of_a_step_names_step_file_and_line_and_leaves_its_outputs(own: Project) -> None:
    run(own, "first")
    for words, line in FAILURES.items():
        with pytest.raises(ProjectCodeError) as error:
            run(own, "half", line)
        path, number = own.root / "tasks/own.py", CODE.strip("\n").count("\n") + 2
        assert str(error.value).startswith(f"{path}, line {number}: {words}"), words
        assert "Step own failed there" in str(error.value)
        assert outputs(own) == ["first", "first"], words
    run(own, "second")
    assert outputs(own) == ["second", "second"]


def test_an_error_of_several_lines_keeps_its_lines(own: Project) -> None:
    with pytest.raises(ProjectCodeError) as error:
        run(own, "half", r"raise ValueError('2 errors\nname: too long\nage: no number')")
    first, second, third, last = error.value.lines
    assert first.endswith("ValueError: 2 errors") and second == "name: too long"
    assert third.startswith("age: no number. This is code of your project. Step own failed there")
    assert last == "Correct the code, or what it reads."


def test_a_step_that_fails_the_first_time_leaves_nothing(own: Project) -> None:
    with pytest.raises(ProjectCodeError):
        run(own, "half", "raise ValueError")
    assert not (own.root / "data/own").exists() and not (own.root / "data/own.json").exists()


def test_after_a_kill_in_a_step_the_next_build_brings_its_outputs_back(own: Project) -> None:
    run(own, "first")
    does, _ = step(own, "half", "import os; os._exit(9)")
    if (pid := os.fork()) == 0:
        with alone(own.root, wait=False):
            start(own.root / "params.yaml", "own", True, False).stage("own", does)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    with alone(own.root, wait=False):
        assert read(own) == ["first", "first"]
    assert (own.root / "data/own.left-by-own.partial/words.txt").read_text(encoding="utf-8") == "half"
