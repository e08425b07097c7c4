"""Writes conform.py, the program beside a tokenizer: the modules of this room, and how lines are printed, in one file."""

import ast
from collections import defaultdict
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

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


class _Parts(NamedTuple):
    """A module: its docstring, the imports behind it, and the rest."""

    docstring: str
    imports: list[ast.stmt]
    code: str


def write_program(directory: Path) -> Path:
    """Writes conform.py. Returns its path."""
    with write_atomic(directory / PROGRAM_FILE) as path:
        path.write_text(_program(), encoding="utf-8")
    return directory / PROGRAM_FILE


def _program() -> str:
    """The docstring of the last module, the imports from other packages, and then the code of each module."""
    files = [path for pattern in _MODULES for path in sorted(Path(__file__).parent.glob(pattern))]
    files.insert(0, Path(tokenmill_reader.shown.__file__))
    *others, last = modules = [_parts(path) for path in files]
    imported: defaultdict[str, set[str]] = defaultdict(set)
    for node in (node for module in modules for node in module.imports):
        start, _, names = ast.unparse(node).partition(" import ")
        if not start.startswith(_LEFT_OUT):
            imported[start].update(names.split(", ") if names else ())
    by_kind = sorted(imported.items(), key=lambda item: (bool(item[1]), item[0]))
    lines = [f"{start} import {', '.join(sorted(names))}" if names else start for start, names in by_kind]
    first = ["from __future__ import annotations", "", "import sys", "", _WITHOUT_ITS_FOLDER]
    head = "\n".join([f'"""{last.docstring}"""', "", *first, "", *lines, ""])
    sections = ["# " + module.docstring.replace("\n", "\n# ") + f"\n\n\n{module.code}" for module in others]
    return "\n\n".join([head, *sections, last.code])


def _parts(module: Path) -> _Parts:
    text = module.read_text(encoding="utf-8")
    tree = ast.parse(text)
    imports = [*takewhile(lambda node: isinstance(node, ast.Import | ast.ImportFrom), tree.body[1:])]
    head_end = [tree.body[0], *imports][-1].end_lineno
    code = "".join(text.splitlines(keepends=True)[head_end:]).lstrip("\n")
    return _Parts(ast.get_docstring(tree, clean=False) or "", imports, code)
