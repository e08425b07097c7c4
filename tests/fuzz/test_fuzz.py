"""Random, damaged input ends in an error of tokenmill's own; `make fuzz` tries more of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.fuzz.tries import TARGETS


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_damaged_input_ends_in_an_error_of_our_own(tmp_path: Path, target: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz", target, "--seconds", "10", "--seed", "0"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
