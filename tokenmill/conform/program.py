"""Writes conform.py beside a tokenizer."""

from pathlib import Path

from tokenmill.conform import consumers
from tokenmill.storage.atomic import write_atomic

PROGRAM_FILE = "conform.py"


def write_program(directory: Path) -> None:
    """Writes conform.py, which is the module `consumers`."""
    with write_atomic(directory / PROGRAM_FILE) as path:
        path.write_bytes(Path(consumers.__file__).read_bytes())
