"""A measurement in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.corpus import ROOT


def run_module(
    module: str, *arguments: object, python: Path | str = sys.executable, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON in the last line that a module prints, or `failed`: why it failed. `environment`: variables beside those of this
    process."""
    command = [str(python), "-m", module, *map(str, arguments)]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": f"exit {done.returncode}: {last[:200]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # some tools print what they do
    return found
