"""The digest of the code that makes a stage's units: what older code has made is not taken for its own."""

import functools
import hashlib
import re
from importlib.metadata import version
from pathlib import Path

from tokenmill import _core

_ROOT = Path(__file__).parent.parent
_TASKS = Path(__file__).parent / "tasks"
# By regex: to parse the modules takes 0.3 s. tests/test_dvc_yaml.py holds the result against Python's own parser.
_IMPORT = re.compile(r"^ *from (tokenmill[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
_NAME = re.compile(r"\w+")


@functools.cache
def code_digest(stage: str) -> str:
    """sha256, in hex, over the module tasks/STAGE.py, what it imports of tokenmill, the core, and the version of pyarrow.

    `stage` as dvc.yaml names it. Modules of the standard library and of other packages are taken to be as
    requirements.lock has them, but for pyarrow, whose version stands in the files it writes.
    """
    digest = hashlib.sha256(f"{_core.SOURCE_HASH} {version('pyarrow')}".encode())
    for path in sorted(imported_modules(_TASKS / f"{stage.replace('-', '_')}.py")):
        digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def imported_modules(module: Path) -> set[Path]:
    """The module's file and those of tokenmill that it imports, wherever in it, and what they import."""
    found: set[Path] = set()
    waiting = {module}
    while waiting:
        path = waiting.pop()
        found.add(path)
        waiting |= _imports(path) - found
    return found


@functools.cache
def _imports(module: Path) -> set[Path]:
    names: set[str] = set()
    for package, found in _IMPORT.findall(module.read_text(encoding="utf-8")):
        names |= {package} | {f"{package}.{name}" for name in _NAME.findall(found)}
    paths = {_ROOT / (name.replace(".", "/") + ".py") for name in names}
    return {path for path in paths if path.is_file()}
