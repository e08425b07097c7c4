"""Copies the folder of a tokenizer that tokenmill made, without programs of others."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

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
        elif _is_part(name):
            with write_atomic(directory / name) as partial:
                shutil.copyfile(source / name, partial)
        else:
            left_out.append(name.as_posix())
    _tell(source, left_out, "copied, as they are no files of a tokenizer")


def withhold_programs(folder: Path, place: str) -> None:
    """Deletes from a folder that was fetched what `copy_folder` would not copy, and writes again what features write. `place`:
    names it for people."""
    for name in FILES:
        if (folder / name).exists():
            write_beside(folder, [name])
    keep_only(folder, place, lambda name: name.as_posix() in FILES or _is_part(name), "a tokenizer")


def keep_only(folder: Path, place: str, is_part: Callable[[PurePath], bool], what: str) -> None:
    """Deletes the other files from a folder that was fetched, and says so. `place`, `what`: name it and what it is for people."""
    left_out = [name for name in files_in(folder) if not is_part(name)]
    for name in left_out:
        (folder / name).unlink()
    _tell(place, [name.as_posix() for name in left_out], f"kept, as they are no files of {what}")


def _is_part(name: PurePath) -> bool:
    return name.suffix in _SUFFIXES and not any(part.startswith(".") for part in name.parts)


def _tell(source: object, left_out: Sequence[str], done: str) -> None:
    if left_out:
        shown = ", ".join(left_out[:_N_NAMES_SHOWN]) + (", …" if len(left_out) > _N_NAMES_SHOWN else "")
        say(f"{source}: {len(left_out):,} files are not {done}: {shown}")
