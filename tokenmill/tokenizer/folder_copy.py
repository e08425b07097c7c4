"""Copies the folder of a tokenizer that tokenmill made, without programs of others."""

import shutil
from pathlib import Path

from tokenmill.conform.program import PROGRAM_FILE, write_program
from tokenmill.console import say
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.followed import files_in

_SUFFIXES = frozenset((".json", ".jinja", ".md", ".model", ".parquet", ".tiktoken", ".txt"))
"""The suffixes of the files that a tokenizer consists of, none of which is a program."""
_N_NAMES_SHOWN = 5


def copy_folder(source: Path, directory: Path) -> None:
    """Copies the files of a tokenizer into an existing directory, and says which it leaves out: hidden files, which git may take
    for its own, and those of other kinds. conform.py is not copied but written, as it is a program that users run.

    Raises StorageError for a link that leads out of the folder."""
    left_out = []
    for name in files_in(source):
        if name == Path(PROGRAM_FILE):
            write_program(directory)
        elif name.suffix in _SUFFIXES and not any(part.startswith(".") for part in name.parts):
            with write_atomic(directory / name) as partial:
                shutil.copyfile(source / name, partial)
        else:
            left_out.append(name.as_posix())
    if left_out:
        shown = ", ".join(left_out[:_N_NAMES_SHOWN]) + (", …" if len(left_out) > _N_NAMES_SHOWN else "")
        say(f"{source}: {len(left_out):,} files are not copied, as they are no files of a tokenizer: {shown}")
