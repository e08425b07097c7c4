"""Runs a step of the project's own: its previous outputs come back if it fails, and its errors name it."""

import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

import tokenmill
from tokenmill.console import say, say_more
from tokenmill.errors import ParamsError, ProjectCodeError, code_of, of_the_machine
from tokenmill.layout import STAGES
from tokenmill.pipeline.stage_order import stages_of
from tokenmill.storage.atomic import remove_tree
from tokenmill.versioning.dvc_stage import DvcStage, opened

_PACKAGES = re.compile("-packages/")
_ORCHESTRATORS = re.compile("-packages/(prefect|distributed|ray)/")


@contextmanager
def outputs_aside(stage: DvcStage, name: str) -> Iterator[None]:
    """Moves a step's outputs aside while the block makes new ones, and restores them if it fails. Outputs that persist stay where
    they are.

    Raises ParamsError if the outputs hold what no build made.
    """
    refuse_foreign_files(stage, name)
    aside = {path: _aside(path, name) for path in stage.outputs_to_remove if path.exists()}
    for path, kept in aside.items():
        path.rename(kept)
    stage.remove_outputs()
    try:
        yield
    except BaseException:
        for path in stage.outputs_to_remove:
            remove_tree(path)
        for path, kept in aside.items():
            kept.rename(path)
        raise
    for kept in aside.values():
        remove_tree(kept)


def bring_back(root: Path) -> None:
    """After a build that was killed in a step: brings the step's previous outputs back. What the step left is moved aside, because
    somebody may have put files there since. Raises VersionsError."""
    for name in stages_of(root):
        if name not in STAGES:
            with opened(root, name, {}) as stage:
                for path in stage.outputs_to_remove:
                    if (kept := _aside(path, name)).exists():
                        _replace(path, kept, name)


def _replace(path: Path, kept: Path, name: str) -> None:
    if path.exists():
        left = path.with_name(f"{path.name}.left-by-{name}.partial")
        remove_tree(left)
        path.rename(left)
        say(
            f"{name}: a build was killed in this step. {path} is restored. What the step left is in {left}, which may be deleted"
        )
    kept.rename(path)


def _aside(path: Path, name: str) -> Path:
    """The path of an output while its step runs. git and DVC ignore that name."""
    return path.with_name(f"{path.name}.before-{name}.partial")


def run_commands(root: Path, name: str) -> None:
    """Runs a step by its commands in dvc.yaml, as `dvc repro` does. What they print goes to stderr; they read no input.

    A command and the processes that it has started end with this one. Raises ProjectCodeError if a command fails.
    """
    with opened(root, name, {}) as stage:
        commands, folder = stage.commands, stage.folder
    shell = os.environ.get("SHELL") or "/bin/sh"
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    environment = {**os.environ, "PATH": path, "DVC_ROOT": str(root), "DVC_STAGE": name}
    for command in commands:
        say_more(f"{name}: {command}")
        with Popen(
            [shell, "-c", command], cwd=folder, env=environment, stdin=DEVNULL, stdout=2, process_group=0
        ) as run:
            try:
                code = run.wait()
            except BaseException:
                os.killpg(run.pid, signal.SIGKILL)
                raise
        if code != 0:
            raise ProjectCodeError(
                "dvc.yaml",
                f"stage {name}: `{command}` ended with code {code}; what it printed is above. This is code of your project. Its "
                "previous output is as it was.",
                "Correct the code, or what it reads.",
            )


@contextmanager
def naming_step(root: Path, name: str) -> Iterator[None]:
    """Turns any error of the block into a ProjectCodeError that names the step, and the file and line of the project at `root` that
    failed. Errors of Prefect, Dask and Ray stay."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if (place := _place(root, error)) is None:
            raise
        is_full = code_of(error) == "TM601"
        said = str(of_the_machine(error) if is_full and isinstance(error, OSError) else error)
        what = f"{type(error).__name__}: {said}".rstrip(": .")
        what += f". This is code of your project. Step {name} failed there, and its previous output is as it was."
        raise ProjectCodeError(
            f"{place[0]}, line {place[1]}",
            what.splitlines(),
            "Correct the code, or what it reads.",
            code="TM601" if is_full else None,
        ) from error


def _place(root: Path, error: BaseException) -> tuple[Path, int] | None:
    """The innermost line of the project's own code; None for an error of an orchestrator."""
    package = Path(tokenmill.__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if _ORCHESTRATORS.search(frame.filename):
            return None
        if path.is_relative_to(root) and not path.is_relative_to(package) and not _PACKAGES.search(frame.filename):
            return path, frame.lineno or 0
    return None


def refuse_foreign_files(stage: DvcStage, name: str) -> None:
    """Raises ParamsError if the outputs of a step hold files that no build has made."""
    files = stage.foreign_files()
    if files:
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        raise ParamsError(
            "dvc.yaml",
            f"the output of stage {name} holds {files[0]}{more}, which no build has made. Running the stage would delete it.",
            "Move it to another folder, such as the one that the stage reads; if an interrupted build left it, "
            "delete it. Then build again.",
            code="TM107",
        )
