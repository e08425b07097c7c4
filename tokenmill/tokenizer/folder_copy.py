"""Copies the folder of a tokenizer that tokenmill made, without programs of others."""

import shutil
from pathlib import Path

from tokenmill.console import say
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.followed import files_in
from tokenmill.tokenizer.beside import FILES, write_beside

_SUFFIXES = frozenset((".json", ".jinja", ".md", ".model", ".parquet", ".tiktoken", ".txt"))
"""The suffixes of the files that a tokenizer consists of, none of which is a program."""
_N_NAMES_SHOWN = 5


def copy_folder(source: Path, directory: Path) -> None:
    """Copies the files of a tokenizer into an existing directory, and says which it leaves out: hidden files, which git may take
    for its own, and those of other kinds. What features write is not copied but written, as users run conform.py.

    Raises StorageError for a link that leads out of the folder."""
    left_out = []
    for name in files_in(source):
        if name.as_posix() in FILES:
            write_beside(directory, [name.name])
        elif name.suffix in _SUFFIXES and not any(part.startswith(".") for part in name.parts):
            with write_atomic(directory / name) as partial:
                shutil.copyfile(source / name, partial)
        else:
            left_out.append(name.as_posix())
    if left_out:
        shown = ", ".join(left_out[:_N_NAMES_SHOWN]) + (", …" if len(left_out) > _N_NAMES_SHOWN else "")
        say(f"{source}: {len(left_out):,} files are not copied, as they are no files of a tokenizer: {shown}")
