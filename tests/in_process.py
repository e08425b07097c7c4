"""Runs commands of tokenmill and DVC in this process: a process of their own spends half a second on imports."""

import contextlib
import io
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
    """Runs `tokenmill` in a folder."""
    out, err = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        finally:
            signal.signal(signal.SIGTERM, handler)
    return Said(code, out.getvalue(), err.getvalue())


def dvc(folder: Path, *arguments: str) -> None:
    """Runs `dvc` in a folder, quietly: otherwise it would print from then on in whatever asks it. Expects it to end well."""
    quiet_environment()
    from dvc.cli import main as dvc_main

    with contextlib.chdir(folder):
        assert dvc_main([*arguments, "--quiet"]) == 0, arguments
