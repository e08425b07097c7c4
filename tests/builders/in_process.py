"""Runs commands of tokenmill and DVC in this process: a process of their own spends half a second on imports."""

import contextlib
import io
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tokenmill.cli.main import main
from tokenmill.versioning.dvc_repository import quiet_environment


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def tokenmill(folder: Path, *arguments: str) -> Said:
    """Runs `tokenmill` in a folder, whose builds must be inline: an embedded server would be named in this process from then on."""
    out, err = io.StringIO(), io.StringIO()
    handler, server = signal.getsignal(signal.SIGTERM), os.environ.get("PREFECT_API_URL")
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        finally:
            signal.signal(signal.SIGTERM, handler)
    assert os.environ.get("PREFECT_API_URL") == server, "it has started a server; run it in a process of its own"
    return Said(code, out.getvalue(), err.getvalue())


def dvc(folder: Path, *arguments: str) -> None:
    """Runs `dvc` in a folder, quietly: otherwise it would print from then on in whatever asks it. Expects it to end well."""
    quiet_environment()
    from dvc.cli import main as dvc_main

    with contextlib.chdir(folder):
        assert dvc_main([*arguments, "--quiet"]) == 0, arguments
