"""Kills builds at random moments and at chosen system calls: `python -m tests.faults [--kills N] [--calls N] [--seed N]`.

Each build is a process of its own, forked from this one, which has all modules loaded: a kill costs a second, not five. After
one or more kills a build is let run to its end. Then the outputs and dvc.lock must be those of an undisturbed build, to the
byte; no temporary file may be left, and nothing may have been done by hand.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import Project, make_project

_FELL = 70  # exit code of a build that ended with an error which it does not expect
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CALLS = {
    "os.rename",
    "os.remove",
    "os.link",
    "os.symlink",
    "os.mkdir",
    "os.rmdir",
    "os.chmod",
    "os.utime",
    "os.truncate",
}


class Scenario:
    """A project as it is before a build, and what the build makes of it."""

    def __init__(self, folder: Path, name: str, prepare: Callable[[Project], None]) -> None:
        self.name = name
        self._before = folder / f"{name}-before"
        self._at = folder / "project"  # always the same place: DVC's state and configuration know paths
        project = self.fresh(lambda: make_project(self._at))
        project.set(
            source__unit_bytes_max=3000, source__unit_bytes_min=600, train_vocab__vocab_size=300, run__workers=2
        )
        randoms = random.Random(7)
        for i in range(6):
            texts = [" ".join(randoms.choices(["a", "cat", "naïve", "東京", "12"], k=30)) for _ in range(30)]
            project.write(f"{i}.jsonl", texts[: 3 if i % 2 else 30])
        prepare(project)
        shutil.copytree(self._at, self._before, symlinks=True)
        start_s = time.monotonic()
        assert run(project) == 0, said(project)
        self.seconds = time.monotonic() - start_s
        self.expected = state(project)
        self.n_calls = self._count_calls()

    def fresh(self, make: Callable[[], Project] | None = None) -> Project:
        """The project as it was before the build."""
        shutil.rmtree(self._at, ignore_errors=True)
        if make:
            return make()
        shutil.copytree(self._before, self._at, symlinks=True)
        return Project(self._at)

    def problem(self, project: Project) -> str | None:
        """Builds to the end; what is wrong then, if anything."""
        code = run(project)
        if code:
            return f"the next build ended with {code}: {said(project)}"
        found = state(project)
        for name in sorted(found.keys() | self.expected.keys()):
            if found.get(name) != self.expected.get(name):
                return (
                    f"{name} is {'missing' if name not in found else 'other' if name in self.expected else 'left over'}"
                )
        left = [str(path) for path in project.root.rglob("*") if path.name.endswith((".partial", ".tmp"))]
        return f"left over: {left}" if left else None

    def _count_calls(self) -> int:
        project = self.fresh()
        counted = project.root.parent / "calls"

        def count() -> None:
            def write(n: int) -> None:
                with counted.open("a", encoding="utf-8") as file:
                    file.write(".")

            _at_calls(project.root, write)

        assert run(project, before=count) == 0, said(project)
        n_calls = counted.stat().st_size
        counted.unlink()
        return n_calls


def scenarios(folder: Path) -> list[Scenario]:
    """From nothing; after a change; and back to a state that DVC's run cache knows."""

    def changed(project: Project) -> None:
        assert run(project) == 0, said(project)
        project.write("0.jsonl", ["another text", "and one more"] * 20)
        project.write("9.jsonl", ["a new shard"])
        (project.root / "data/raw/1.jsonl").unlink()

    def set_back(project: Project) -> None:
        assert run(project) == 0, said(project)
        project.set(train_vocab__vocab_size=290)
        assert run(project) == 0, said(project)
        project.set(train_vocab__vocab_size=300)

    return [
        Scenario(folder, "new", lambda project: None),
        Scenario(folder, "changed", changed),
        Scenario(folder, "set-back", set_back),
    ]


def kill_at_random(scenario: Scenario, randoms: random.Random) -> str | None:
    """Kills one build, or several one after the other, at random moments; what is wrong at the end, if anything."""
    project = scenario.fresh()
    moments = [randoms.uniform(0, scenario.seconds * 1.1) for _ in range(randoms.choice([1, 1, 2, 3]))]
    for moment_s in moments:
        pid = start(project)
        time.sleep(moment_s)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    problem = scenario.problem(project)
    return problem and f"{scenario.name}, killed after {', '.join(f'{m:.3f} s' for m in moments)}: {problem}"


def kill_at_call(scenario: Scenario, n: int) -> str | None:
    """Kills a build before the n-th call that writes to the project; what is wrong at the end, if anything."""
    project = scenario.fresh()

    def kill(calls: int) -> None:
        if calls == n:
            os.kill(os.getpid(), signal.SIGKILL)

    run(project, before=lambda: _at_calls(project.root, kill))
    problem = scenario.problem(project)
    return problem and f"{scenario.name}, killed at call {n} of {scenario.n_calls}: {problem}"


def run(project: Project, before: Callable[[], None] = lambda: None) -> int:
    """A build in a process of its own; its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(start(project, before), 0)[1])


def start(project: Project, before: Callable[[], None] = lambda: None) -> int:
    """Starts such a build; its process id. `before` runs in it first."""
    pid = os.fork()
    if pid:
        return pid
    code = _FELL
    try:
        from tokenmill.cli import main

        os.chdir(project.root)
        output = os.open(_output(project), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = ["tokenmill", "build"]
        before()
        code = main(["build"])
    finally:
        if code == _FELL:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def said(project: Project) -> str:
    """What the last build has said."""
    return _output(project).read_text(encoding="utf-8")


def state(project: Project) -> dict[str, bytes]:
    """All that a build leaves for others to see."""
    return project.outputs() | {"dvc.lock": (project.root / "dvc.lock").read_bytes()}


def load_modules() -> None:
    """Imports what a build needs, so that the forked ones have it."""
    import dvc.api
    import dvc.dvcfile
    import dvc.stage.cache  # noqa: F401

    import tokenmill.build
    import tokenmill.cli  # noqa: F401


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder, which goes at the end."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-faults-") as path:
        yield Path(path)


def _output(project: Project) -> Path:
    return project.root.parent / "said.txt"


def _at_calls(root: Path, do: Callable[[int], None]) -> None:
    """Calls `do` with 1, 2, … before each call of this process that writes to a file system inside `root`."""
    n = 0
    sync = os.fsync

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal n
        if event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & _WRITES
        else:
            writes = event in _CALLS
        if writes and any(isinstance(one, str) and one.startswith(str(root)) for one in map(_path, arguments[:2])):
            n += 1
            do(n)

    def counted_sync(descriptor: int) -> None:
        nonlocal n
        n += 1
        do(n)
        sync(descriptor)

    os.fsync = counted_sync  # the one call of interest that Python does not announce
    sys.addaudithook(hook)


def _path(argument: object) -> object:
    return os.fsdecode(argument) if isinstance(argument, bytes | os.PathLike) else argument


def main() -> int:
    """The command line; 0 when every build ended with the right bytes."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--kills", type=int, default=1000, help="at random moments")
    parser.add_argument(
        "--calls", type=int, default=None, help="at so many of the writing system calls (default: each)"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    load_modules()
    randoms = random.Random(asked.seed)
    problems = []
    with folder() as path:
        known = scenarios(path)
        calls = [(one, n) for one in known for n in range(1, one.n_calls + 1)]
        if asked.calls is not None:
            calls = randoms.sample(calls, min(asked.calls, len(calls)))
        for i in range(asked.kills):
            problems.append(kill_at_random(known[i % len(known)], randoms))
            _show("random moments", i + 1, asked.kills, problems)
        n_before = len(problems)
        for i, (scenario, n) in enumerate(calls):
            problems.append(kill_at_call(scenario, n))
            _show("system calls", i + 1, len(calls), problems[n_before:])
    return 1 if any(problems) else 0


def _show(what: str, i: int, n: int, problems: list[str | None]) -> None:
    if problems[-1]:
        print(problems[-1], flush=True)
    if i == n or i % 50 == 0:
        wrong = sum(problem is not None for problem in problems)
        print(f"killed at {what}: {i} of {n}; {i - wrong} ended equal, {wrong} did not", flush=True)


if __name__ == "__main__":
    sys.exit(main())
