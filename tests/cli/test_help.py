"""Help, suggestions and completion of the command line, and how fast it starts."""

import argparse
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders.teams import cli
from tests.conftest import REPOSITORY, Project
from tests.times import PATIENCE_S
from tokenmill.cli.help import SHELLS
from tokenmill.cli.main import make_parser
from tokenmill.cli.parser import GROUPS
from tokenmill.errors import EXIT_CODES

HEAVY = ("dvc", "numpy", "pandas", "polars", "prefect", "pyarrow", "pydantic", "rich", "ruamel", "shtab")


def options() -> dict[str, set[str]]:
    """By command, its options, as argparse itself knows them."""
    parser = make_parser()
    [commands] = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return {
        name: {option for action in one._actions for option in action.option_strings}
        for name, one in commands.choices.items()
    }


def test_the_help_has_every_command_once_in_a_group_and_every_exit_code(tmp_path: Path) -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(options())
    done = cli_exit(tmp_path, "--help")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    for group, commands in GROUPS.items():
        at = lines.index(f"{group}:")
        assert [line.split()[0] for line in lines[at + 1 : at + 1 + len(commands)]] == list(commands)
        assert lines[at + 1 + len(commands)].startswith("  example: tokenmill ")
    at = lines.index("exit codes:")
    assert [int(line.split()[0]) for line in lines[at + 1 : at + 1 + len(EXIT_CODES)]] == list(EXIT_CODES)
    assert max(map(len, lines)) <= 132


@pytest.mark.slow
def test_every_command_shows_an_example_that_the_parser_takes(tmp_path: Path) -> None:
    for name in options():
        [example] = [
            line
            for line in cli_exit(tmp_path, name, "--help").stdout.splitlines()
            if line.startswith("example: tokenmill ")
        ]
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\n' {example.partition('>')[0].removeprefix('example: tokenmill ')}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        assert make_parser().parse_args(words).command == name


def test_no_command_prints_the_help_and_is_an_error(tmp_path: Path) -> None:
    done = cli(Project(tmp_path), *[])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: tokenmill COMMAND")
    assert done.stderr.endswith("tokenmill: error[TM001]: no command given.\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["biuld"], "there is no command 'biuld'. Did you mean build?"),
        (["stauts", "--json"], "there is no command 'stauts'. Did you mean status?"),
        (["xyz"], "there is no command 'xyz'. `tokenmill --help` lists the commands."),
        (["build", "--forse"], "build: unrecognized arguments: --forse. Did you mean --force?"),
        (["build", "--onyl=count"], "build: unrecognized arguments: --onyl=count. Did you mean --only?"),
        (["build", "--reh"], "build: unrecognized arguments: --reh. Did you mean --rehash?"),
        (["status", "--vebrose"], "status: unrecognized arguments: --vebrose. Did you mean --verbose?"),
        (["status", "more"], "status: unrecognized arguments: more."),
        (["fetch", "a@v1.0.0"], "fetch: the following arguments are required: DIR."),
        (["-q", "status", "-v"], "status: --quiet and --verbose exclude each other."),
    ],
)
def test_what_is_mistyped_is_an_error_that_suggests_the_nearest(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = cli(Project(tmp_path), *arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"tokenmill: error[TM001]: {said}"


def test_a_mistyped_stage_or_artifact_suggests_the_nearest(project: Project) -> None:
    done = cli(project, "build", "--only", "encod")
    assert done.returncode == 2
    assert done.stderr.endswith("allowed: count, train-vocab, encode, validate. Did you mean encode?\n")
    done = cli(project, "publish", "tokeniser@v1.0.0")
    assert done.returncode == 2
    assert done.stderr.endswith("the artifacts are: dataset, tokenizer. Did you mean tokenizer?\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_knows_every_command_and_option(tmp_path: Path, shell: str) -> None:
    script = cli(Project(tmp_path), "completion", shell).stdout
    for name, of in options().items():
        assert name in script
        for option in of - {"-h", "-q", "-v"}:
            assert option.lstrip("-") in script


def test_bash_completes_commands_options_and_values_with_it(tmp_path: Path) -> None:
    (tmp_path / "completion").write_text(cli(Project(tmp_path), "completion", "bash").stdout, encoding="utf-8")
    asked = """
source ./completion
complete=$(complete -p tokenmill | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=(tokenmill bu); COMP_CWORD=1; $complete tokenmill bu tokenmill; echo "${COMPREPLY[@]}"
COMP_WORDS=(tokenmill build --re); COMP_CWORD=2; $complete tokenmill --re build; echo "${COMPREPLY[@]}"
COMP_WORDS=(tokenmill completion z); COMP_CWORD=2; $complete tokenmill z completion; echo "${COMPREPLY[@]}"
COMP_WORDS=(tokenmill build --only tr); COMP_CWORD=3; $complete tokenmill tr --only; echo "${COMPREPLY[@]}"
COMP_WORDS=(tokenmill explain TM11); COMP_CWORD=2; $complete tokenmill TM11 explain; echo "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        ["build", "--rehash", "zsh", "train-vocab", "TM110 TM111 TM112"],
    )


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_options_and_values(tmp_path: Path) -> None:
    script = cli(Project(tmp_path), "completion", "fish").stdout
    (tmp_path / "tokenmill.fish").write_text(script, encoding="utf-8")
    lines = ["bu", "build --re", "completion z", "build --only tr", "explain TM11"]
    asked = "\n".join(["source tokenmill.fish", *(f"complete -C 'tokenmill {line}'" for line in lines)])
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        ["fish", "-c", asked], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    found = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert found == ["build", "--rehash", "zsh", "train-vocab", "TM110", "TM111"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("bu", "build "),
        ("build --re", "--rehash "),
        ("completion z", "zsh "),
        ("build --only tr", "train-vocab "),
        ("explain TM11", "TM110  TM111"),
    ],
)
def test_zsh_completes_commands_options_and_values(tmp_path: Path, typed: str, shown: str) -> None:
    (tmp_path / "_tokenmill").write_text(cli(Project(tmp_path), "completion", "zsh").stdout, encoding="utf-8")
    ours, its = pty.openpty()  # completion wants a terminal
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "dumb"}
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], cwd=tmp_path, env=environment, stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    try:
        os.write(ours, b"fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy\n")
        assert "ready" in _read_until(ours, "ready")
        os.write(ours, f"tokenmill {typed}\t".encode())
        assert shown in _read_until(ours, shown)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(its)


def _read_until(terminal: int, words: str) -> str:
    """What a terminal shows until it shows these words."""
    shown = b""
    end_s = time.monotonic() + PATIENCE_S
    while words.encode() not in shown and time.monotonic() < end_s:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 1 << 16)
    return shown.decode()


@pytest.mark.parametrize("code", ["import tokenmill", "from tokenmill.__main__ import program; program()"])
@pytest.mark.parametrize("argument", ["--help", "--version", "explain"])
def test_nothing_heavy_is_imported_before_it_is_needed(code: str, argument: str) -> None:
    script = f"import sys; {code}; print(sorted({{name.split('.')[0] for name in sys.modules}} & {set(HEAVY)}), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, argument], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


def cli_exit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same for what argparse itself ends: a process of its own."""
    return Project(folder).run(sys.executable, "-m", "tokenmill", *arguments, COLUMNS="200")
