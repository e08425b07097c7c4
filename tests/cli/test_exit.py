"""How the process of a command ends: with its code, and without a traceback."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.builders.processes import ended
from tests.conftest import Project
from tokenmill import Counter, train_vocab


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--version"], 0), (["--help"], 0), (["nosuch"], 2), (["check", "nowhere"], 2), (["build"], 2)],
)
def test_the_code_is_that_of_the_command(tmp_path: Path, arguments: list[str], code: int) -> None:
    done = ended(tmp_path, *arguments)
    assert done.returncode == code
    assert done.stdout or done.stderr
    assert b"Traceback" not in done.stderr


def test_a_closed_output_is_no_traceback(tmp_path: Path) -> None:
    done = ended(tmp_path, "check", "nowhere", stdout=None, preexec_fn=lambda: os.close(1))
    assert done.returncode == 2
    assert b"Exception" not in done.stderr


def test_with_standard_error_closed_json_stands_alone(tmp_path: Path) -> None:
    done = ended(tmp_path, "check", "nowhere", "--json", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert done.returncode == 2
    assert json.loads(done.stdout)["ok"] is False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["--help"], ""),  # unbuffered, argparse itself drops the error
        *(
            (one, how)
            for one in (["status"], ["status", "--json"], ["check", "nowhere", "--json"])
            for how in ("", "1")
        ),
    ],
)
def test_an_output_on_a_full_disk_is_one_error(
    project: Project, arguments: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("wb") as full:
        done = ended(project.root, *arguments, stdout=full)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(b"tokenmill: error[TM")


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["check", "tokenizer"], ""),
        (["check", "tokenizer"], "1"),
        (["check", "tokenizer", "--json"], ""),
        (["--help"], ""),
    ],
)
def test_a_reader_that_has_seen_enough_ends_it_in_silence(
    tmp_path: Path, arguments: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    counter = Counter("gpt2")
    counter.update(["the cat"])
    train_vocab(counter, vocab_size=258, pattern="gpt2", special_tokens=[]).save(tmp_path / "tokenizer")
    read, write = os.pipe()
    os.close(read)
    done = ended(tmp_path, *arguments, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")
