"""Processes of tokenmill's command, to look at how they end or to end them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.builders.prefect_server import end
from tests.conftest import REPOSITORY, Project
from tests.times import PATIENCE_S

COMMAND = [sys.executable, "-m", "tokenmill"]
STDERR = "stderr.txt"


def ended(folder: Path, *arguments: str, **named: object) -> subprocess.CompletedProcess[bytes]:
    """A command that has ended, with what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | named
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=environment, check=False, timeout=PATIENCE_S, **given)  # type: ignore[call-overload, no-any-return]


@contextmanager
def building(project: Project, home: dict[str, str], n_documents: int = 8) -> Iterator[subprocess.Popen[bytes]]:
    """A build that would be at work for some seconds more, and whose flow runs; it is ended with the block."""
    words = " ".join(f"w{i}" for i in range(200_000))
    for name in "cdefgh":
        project.write(f"{name}.jsonl", [words] * n_documents)
    project.set(run__engine="threads", run__workers=1)
    environment = {**os.environ, **home, "PYTHONPATH": str(REPOSITORY)}
    command = [str(Path(sys.executable).parent / "tokenmill"), "build"]
    with (project.root / STDERR).open(
        "w", encoding="utf-8"
    ) as file:  # a pipe would stay open in a server that is left behind
        process = subprocess.Popen(command, cwd=project.root, env=environment, stderr=file, start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "count: started" not in said(project):
            assert time.monotonic() < deadline
            assert process.poll() is None, said(project)
            time.sleep(0.05)
        yield process
    finally:
        end(process)


def said(project: Project) -> str:
    """What such a build has written to standard error so far."""
    return (project.root / STDERR).read_text(encoding="utf-8")
