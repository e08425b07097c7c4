"""The digest of the code that makes a stage's units: what older code has made is not taken for its own."""

import functools
import hashlib
import re
from pathlib import Path

import pyarrow as pa

from tokenmill import _core

_ROOT = Path(__file__).parent.parent
# By regex: to parse the modules takes 0.3 s. tests/test_dvc_yaml.py holds the result against Python's own parser.
_IMPORT = re.compile(r"^ *from ((?:tokenmill|tasks)[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
_NAME = re.compile(r"\w+")


@functools.cache
def code_digest(stage: str) -> str:
    """sha256, in hex, over the module tasks/STAGE.py, what it imports of tokenmill, the core, and the version of pyarrow.

    `stage` as the module is named. Modules are found as Python finds them from the project's root; those of the standard
    library and of other packages are taken to be as requirements.lock has them, but for pyarrow, whose version stands in
    the files it writes.
    """
    digest = hashlib.sha256(f"{_core.SOURCE_HASH} {pa.__version__}".encode())
    for path in sorted(imported_modules(_ROOT / "tasks" / f"{stage}.py")):
        digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def imported_modules(module: Path) -> set[Path]:
    """The module's file and those of this project that it imports, wherever in it, and what they import."""
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
