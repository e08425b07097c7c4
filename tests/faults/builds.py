"""Runs builds of small projects in their own processes, and checks the outcome.

A build is forked from this process, which has all modules loaded: it costs a second, not six.
"""

import contextlib
import faulthandler
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
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Project, make_project

HANGS_S = 30.0
_HANGING = -99  # exit code of a build that was still there after that time
_FELL = 70  # of one that ended with an error which it does not expect
_LOOK_S = 0.005


@dataclass(frozen=True)
class Ended:
    """How a build ended, and what it has said."""

    code: int
    said: str

    @property
    def hung(self) -> bool:
        """Whether it had to be killed."""
        return self.code == _HANGING


class Scenario:
    """A project as it is before a build, and what the build makes of it; `project` is a copy, made anew by `fresh`."""

    def __init__(self, folder: Path, name: str, prepare: Callable[[Project], None]) -> None:
        self.name = name
        self._before = folder / f"{name}-before"
        self.project = Project(folder / "project")  # always the same place: DVC's state and configuration know paths
        shutil.rmtree(self.project.root, ignore_errors=True)
        prepare(make_project(self.project.root))
        shutil.copytree(self.project.root, self._before, symlinks=True)
        start_s = time.monotonic()
        ended = run(self.project)
        assert ended.code == 0, ended.said
        self.seconds = time.monotonic() - start_s
        self.expected = state(self.project)

    def fresh(self) -> Project:
        """The project as it was before the build."""
        shutil.rmtree(self.project.root, ignore_errors=True)
        shutil.copytree(self._before, self.project.root, symlinks=True)
        return self.project

    def healed(self) -> str | None:
        """Builds to the end; what is wrong then, if anything."""
        ended = run(self.project)
        if ended.code:
            return f"the next build ended with {ended.code}: {ended.said}"
        return self.differs() or self.leftovers()

    def differs(self) -> str | None:
        """What is not as an undisturbed build leaves it, if anything."""
        found = state(self.project)
        for name in sorted(found.keys() | self.expected.keys()):
            if found.get(name) != self.expected.get(name):
                how = "missing" if name not in found else "other" if name in self.expected else "left over"
                return f"{name} is {how}"
        return None

    def leftovers(self) -> str | None:
        """Temporary files that no build is going to use, if any."""
        left = [path for path in self.project.root.rglob("*") if path.name.endswith((".partial", ".tmp"))]
        left += (self.project.root / ".tokenmill").glob("count-*")
        return f"left over: {', '.join(map(str, left))}" if left else None


class Scenarios:
    """The scenarios of one folder, each prepared when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, Scenario] = {}

    def __getitem__(self, name: str) -> Scenario:
        if name not in self._made:
            self._made[name] = Scenario(self.folder, name, _PREPARE[name])
        return self._made[name]


def _tiny(project: Project) -> None:
    """Two shards of three documents and one worker: the fewest calls that a whole build makes."""
    project.set(run__workers=1, train_vocab__vocab_size=300)


def _new(project: Project) -> None:
    """Units that are parts of shards, and units that are several."""
    project.set(source__unit_bytes_max=3000, source__unit_bytes_min=600, train_vocab__vocab_size=300, run__workers=2)
    randoms = random.Random(7)
    for i in range(6):
        texts = [" ".join(randoms.choices(["a", "cat", "naïve", "東京", "12"], k=30)) for _ in range(30)]
        project.write(f"{i}.jsonl", texts[: 3 if i % 2 else 30])


def _changed(project: Project) -> None:
    """Built; then a shard is changed, one is new, one is gone."""
    _new(project)
    _built(project)
    project.write("0.jsonl", ["another text", "and one more"] * 20)
    project.write("9.jsonl", ["a new shard"])
    (project.root / "data/raw/1.jsonl").unlink()


def _set_back(project: Project) -> None:
    """Built twice; then set back to what DVC's run cache knows."""
    _new(project)
    _built(project)
    project.set(train_vocab__vocab_size=290)
    _built(project)
    project.set(train_vocab__vocab_size=300)


def _built(project: Project) -> None:
    ended = run(project)
    assert ended.code == 0, ended.said


_PREPARE = {"tiny": _tiny, "new": _new, "changed": _changed, "set-back": _set_back}


def run(project: Project, before: Callable[[], None] = lambda: None, *arguments: str) -> Ended:
    """A build in a process of its own, until it has ended or hangs."""
    return await_end(start(project, before, *arguments), project)


def start(
    project: Project, before: Callable[[], None] = lambda: None, *arguments: str, output: str = "said.txt"
) -> int:
    """Starts such a build; its process id, once it has begun: a signal that came sooner would meet this process's fork. `before`
    runs in it first."""
    begun, begins = os.pipe()
    pid = os.fork()
    if pid:
        os.close(begins)
        os.read(begun, 1)
        os.close(begun)
        return pid
    code = _FELL
    try:
        from tokenmill.cli.main import main

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs us behind itself has it ignored
        os.chdir(project.root)
        said = os.open(project.root.parent / output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(said, 1)
        os.dup2(said, 2)
        faulthandler.dump_traceback_later(HANGS_S - 5)  # where it hangs, if it does
        sys.argv = ["tokenmill", "build"]
        os.close(begun)
        os.close(begins)
        before()
        code = main(["build", *arguments])
    finally:
        if code == _FELL:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def await_end(pid: int, project: Project, hangs_s: float = HANGS_S, output: str = "said.txt") -> Ended:
    """How a build ends; one that has not ended after `hangs_s` is killed."""
    end_s = time.monotonic() + hangs_s
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return Ended(os.waitstatus_to_exitcode(status), said(project, output))
        if time.monotonic() > end_s:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return Ended(_HANGING, said(project, output))
        time.sleep(_LOOK_S)


def said(project: Project, output: str = "said.txt") -> str:
    """What the last build has said."""
    return (project.root.parent / output).read_text(encoding="utf-8", errors="replace")


def state(project: Project) -> dict[str, bytes]:
    """All that a build leaves for others to see."""
    lock = project.root / "dvc.lock"
    return project.outputs() | ({"dvc.lock": lock.read_bytes()} if lock.exists() else {})


def load_modules() -> None:
    """Imports what a build needs, so that the forked ones have it."""
    import dvc.api
    import dvc.dvcfile
    import dvc.stage.cache  # noqa: F401

    import tokenmill.cli.main
    import tokenmill.pipeline.build
    import tokenmill.pipeline.run  # noqa: F401

    with contextlib.suppress(ImportError):
        import pandas  # noqa: F401 — pyarrow imports it for the first array, where it is installed: 0.4 s a build


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A temporary folder, in memory where there is such a file system (calls are the same, fsync is faster)."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tokenmill-faults-", dir=parent) as path:
        yield Path(path)
