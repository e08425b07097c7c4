"""Builds under faults of the machine, a few of each kind (`make test-faults` tries all)."""

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.faults import shim


@pytest.mark.slow
@pytest.mark.skipif(shim.missing() is not None, reason=shim.missing() or "")
@pytest.mark.parametrize(
    "modes",
    [
        ("kills", "kills-at-calls", "signals"),
        ("errors", "order", "disk-full", "at-once", "inputs", "bombs", "surroundings"),
    ],
)
def test_builds_under_faults_end_with_the_right_bytes_or_a_clear_error(modes: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tests.faults", *modes, "--short"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
