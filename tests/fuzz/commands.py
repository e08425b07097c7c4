"""Runs the programs that are shipped on damaged files, and checks how they end and what they print."""

import io
import json
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random

from tests.builders import in_process
from tests.fuzz.changes import ODD_NAMES
from tokenmill_reader.__main__ import main as reader_main
from tokenmill_reader.shown import as_shown


def run_command(folder: Path, *arguments: str) -> None:
    """Runs `tokenmill`."""
    said = in_process.tokenmill(folder, *arguments)
    assert said.returncode in (0, 1, 2), said.stderr
    _check_shown(said.stdout + said.stderr)


def run_reader(folder: Path, *arguments: str) -> None:
    """Runs `python -m tokenmill_reader`."""
    with chdir(folder), redirect_stdout(out := io.StringIO()), redirect_stderr(out):
        reader_main(arguments)
    _check_shown(out.getvalue())


def run_conform(chance: Random, tokenizer: Path) -> None:
    """Runs conform.py with odd names of texts that have other ids."""
    golden = json.loads((tokenizer / "golden.json").read_bytes())
    for vector in golden["vectors"]:
        vector |= {"name": chance.choice(ODD_NAMES), "ids": [*vector["ids"], 0]}
    (tokenizer / "golden.json").write_text(json.dumps(golden))
    command = [sys.executable, str(tokenizer / "conform.py"), "--with", "tokenizers"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode in (1, 2) and "Traceback" not in said.stderr, said.stderr
    _check_shown(said.stdout + said.stderr)


def _check_shown(text: str) -> None:
    """Fails if a name of a file could command a terminal, or has forged a line."""
    lines = text.split("\n")
    assert text == as_shown(lines) and not any(line.startswith("FORGED") for line in lines), f"{text!r} was printed"
