"""The files that features write beside a tokenizer."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from tokenmill.features import PARTS, load
from tokenmill_reader.regular_files import read

FILES = tuple(PARTS["beside"])
"""Their names."""


def write_beside(directory: Path, names: Iterable[str] = FILES) -> None:
    """Writes these files into a tokenizer's folder."""
    for name in names:
        load(PARTS["beside"][name])(directory)


def is_written_here(path: Path) -> bool:
    """Whether a file is the one that this tokenmill writes beside a tokenizer, as after `fetch`."""
    if path.name not in FILES:
        return False
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        write_beside(Path(folder), [path.name])
        return read(Path(folder) / path.name) == read(path)
