"""The options that every command has: how much is printed, and the exit codes."""

import os
import pty
import sys
from pathlib import Path

import pytest

from tests.builders.teams import cli
from tests.conftest import REPOSITORY, Project


@pytest.mark.parametrize("quiet", [["-q", "build"], ["build", "--quiet"]])
def test_a_quiet_build_says_nothing(project: Project, quiet: list[str]) -> None:
    for _ in range(2):  # one that runs, and one with nothing to do
        done = cli(project, *quiet)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "up to date" in cli(project, "status", "-q").stdout  # what was asked for
    assert cli(project, "build").stderr == "Nothing to do: every stage is up to date.\n"


def test_a_quiet_command_says_its_errors(project: Project) -> None:
    project.set(source__glob="data/none/*")
    done = cli(project, "-q", "build")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("tokenmill: error[TM203]: ")


def test_a_build_tells_once_what_is_deprecated(project: Project) -> None:
    project.set(count__approximate=None)
    assert (
        cli(project, "build").stderr.count("warning: count.approximate: is gone from tokenmill 0.5.0 on. Take the line")
        == 1
    )
    assert "warning" not in cli(project, "build", "--quiet").stderr


def test_a_verbose_build_says_each_unit(project: Project) -> None:
    said = cli(project, "build", "-v").stderr.splitlines()
    for stage in ("count", "encode", "validate"):
        lines = [line for line in said if line.startswith(f"{stage} data/raw/")]
        assert len(lines) == 2
        assert "3 documents" in lines[0]
    assert not [line for line in cli(project, "build", "--force").stderr.splitlines() if line.startswith("count data")]


def test_debug_shows_where_an_error_comes_from(project: Project) -> None:
    for arguments in (["--debug", "pin"], ["pin", "--debug"]):
        done = cli(project, *arguments)
        assert done.returncode == 2
        assert "Traceback" in done.stderr and "in _pin" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("tokenmill: error[TM100]: ")
    assert "Traceback" not in cli(project, "pin").stderr


@pytest.mark.slow
def test_debug_shows_what_dvc_logs(project: Project) -> None:
    assert " dvc" in project.run("tokenmill", "status", "--debug").stderr
    assert project.run("tokenmill", "status").stderr == ""


@pytest.mark.slow
def test_a_pipe_gets_no_control_codes_unless_forced(project: Project) -> None:
    cli(project, "build")
    shown = {"TERM": "xterm-256color", "NO_COLOR": "", "FORCE_COLOR": ""}
    for command in (["build"], ["--help"], ["biuld"], ["status"]):
        done = project.run("tokenmill", *command, **shown)
        assert "\x1b" not in done.stdout + done.stderr
    forced = project.run("tokenmill", "build", **{**shown, "FORCE_COLOR": "1"}).stdout
    assert "\x1b[1m" in forced


@pytest.mark.slow
@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_no_colors_with_no_color(project: Project, no_color: str) -> None:
    said = on_a_terminal(project.root, "build", NO_COLOR=no_color)
    assert "read/s" in said
    assert "read it  tokenmill.open('data/tokens')" in said
    assert "dataset  data/tokens" in said and "report   data/report/report.json" in said
    assert ("\x1b[38" in said or "\x1b[3" in said.replace("\x1b[3m", "")) is (not no_color)
    said = on_a_terminal(project.root, "biuld", NO_COLOR=no_color)
    assert said.splitlines()[-1] == "`tokenmill explain TM001` says more."


def on_a_terminal(folder: Path, *arguments: str, **env: str) -> str:
    """What a terminal is sent by a command that runs on it."""
    known = {name: value for name, value in os.environ.items() if name not in ("CI", "FORCE_COLOR")}
    environment = {**known, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm-256color", **env}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, "-m", "tokenmill", *arguments], environment)
    said = b""
    while True:
        try:
            block = os.read(terminal, 65536)
        except OSError:  # the end of a terminal
            break
        if not block:
            break
        said += block
    os.waitpid(pid, 0)
    os.close(terminal)
    return said.decode()
