"""Writes conform.py, the program beside a tokenizer: the modules of this room, and how lines are printed, in one file."""

import re
from collections import defaultdict
from pathlib import Path

import tokenmill_reader.shown
from tokenmill.storage.atomic import write_atomic

PROGRAM_FILE = "conform.py"
_MODULES = ("consumer.py", "consumers/[!_]*.py", "answer.py", "compare.py")
"""What becomes conform.py, in this order. No two of these modules may define the same name."""

_WITHOUT_ITS_FOLDER = """\
# Python puts the folder of a program in front of its path, and what lies beside a tokenizer is not to be imported.
if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]"""
"""What conform.py begins with: until then it may import only what is built into Python."""

_LEFT_OUT = ("from __future__", "import sys", "from tokenmill")
"""How the imports begin that conform.py has already, or does not need."""

_PARTS = re.compile(r'"""(.*?)"""\n+((?:(?:import|from) [^\n]+\n+)*)(.*)', re.DOTALL)
"""The docstring of a module, its imports, and the rest."""


def write_program(directory: Path) -> Path:
    """Writes conform.py. Returns its path."""
    with write_atomic(directory / PROGRAM_FILE) as path:
        path.write_text(_program(), encoding="utf-8")
    return directory / PROGRAM_FILE


def _program() -> str:
    """The docstring of the last module, the imports from other packages, and then the code of each module."""
    files = [path for pattern in _MODULES for path in sorted(Path(__file__).parent.glob(pattern))]
    files.insert(0, Path(tokenmill_reader.shown.__file__))
    *others, (docstring, _, main) = parts = [_parts(path) for path in files]
    imported: defaultdict[str, set[str]] = defaultdict(set)
    for line in "".join(imports for _, imports, _ in parts).split("\n"):
        start, _, names = line.partition(" import ")
        if start and not start.startswith(_LEFT_OUT):
            imported[start].update(names.split(", ") if names else ())
    by_kind = sorted(imported.items(), key=lambda item: (bool(item[1]), item[0]))
    lines = [f"{start} import {', '.join(sorted(names))}" if names else start for start, names in by_kind]
    first = ["from __future__ import annotations", "", "import sys", "", _WITHOUT_ITS_FOLDER]
    head = "\n".join([f'"""{docstring}"""', "", *first, "", *lines, ""])
    sections = ["# " + comment.replace("\n", "\n# ") + f"\n\n\n{code}" for comment, _, code in others]
    return "\n\n".join([head, *sections, main])


def _parts(module: Path) -> tuple[str, ...]:
    found = _PARTS.fullmatch(module.read_text(encoding="utf-8"))
    assert found is not None and "import (" not in found[2], (
        f"{module}: expected a docstring, then imports of one line each"
    )
    return found.groups()
