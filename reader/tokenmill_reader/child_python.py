"""The command of a Python process that runs a module of ours, and no file of the working folder in place of another module."""

from __future__ import annotations

import sys
from pathlib import Path

_OURS = Path(__file__).absolute().parent.parent


def command_of(module: str, *arguments: str) -> list[str]:
    """The command that runs a module as `python -m` does. The process imports from where this one does, but not from the working
    folder, which may hold a json.py of somebody else. Python has an option for that, -P, only from 3.11 on."""
    kept = [entry for entry in sys.path if _is_same(entry, _OURS) or not _is_same(entry, Path())]
    path = [str(Path(entry).absolute()) for entry in kept]
    if str(_OURS) not in path:
        path.append(str(_OURS))
    # Nothing may be imported before the path is set: for -c, it begins with the working folder.
    code = f"import sys; sys.path[:] = {path!a}; import runpy; runpy.run_module({module!r}, None, '__main__', True)"
    return [sys.executable, "-c", code, *arguments]


def _is_same(entry: str, folder: Path) -> bool:
    """Whether an entry of the path is this folder. An empty one is the working folder, which may have been removed."""
    try:
        return Path(entry).samefile(folder)
    except OSError:
        return False
