"""Builds that are killed go on from where they were (tests/faults.py does more of the same: `make test-faults`)."""

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.slow
def test_killed_builds_end_with_the_bytes_of_undisturbed_ones() -> None:
    command = [sys.executable, "-m", "tests.faults", "--kills", "12", "--calls", "13"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
