"""The files that features write beside a tokenizer."""

from collections.abc import Iterable
from pathlib import Path

from tokenmill.features import PARTS, load

FILES = tuple(PARTS["beside"])
"""Their names."""


def write_beside(directory: Path, names: Iterable[str] = FILES) -> None:
    """Writes these files into a tokenizer's folder."""
    for name in names:
        load(PARTS["beside"][name])(directory)
