"""The digest of the code that makes a stage's outputs: what other code has made is not taken for its own.

A stage depends on whole rooms, the folders of tokenmill/ that decide bytes, and on its own module in tokenmill/stages/. The
other rooms say how a build runs and not what it makes; a change there makes nothing stale.
"""

import functools
import hashlib
from importlib.metadata import version
from pathlib import Path

from tokenmill import _core

_PACKAGE = Path(__file__).parent.parent
_DOCUMENTS = ("corpus", "pretokenizers", "counts")

ROOMS = {
    "count": _DOCUMENTS,
    "train-vocab": (*_DOCUMENTS, "tokenizer", "training", "artifacts"),
    "encode": (*_DOCUMENTS, "tokenizer", "artifacts", "dataset"),
    "validate": (*_DOCUMENTS, "tokenizer", "artifacts", "dataset"),
}
"""The rooms that decide the bytes of each stage's outputs, beside its module; dvc.yaml names the same."""


@functools.cache
def code_digest(stage: str, package: Path = _PACKAGE) -> str:
    """sha256, in hex, over the stage's rooms and module, the core's sources, and the version of pyarrow, which stands in the
    files it writes. `stage` as dvc.yaml names it.

    Other packages are taken to be as requirements.lock has them.
    """
    digest = hashlib.sha256(f"{_core.SOURCE_HASH} {version('pyarrow')}".encode())
    modules = [package / "stages" / f"{stage.replace('-', '_')}.py"]
    for room in ROOMS[stage]:
        modules += (package / room).rglob("*.py")
    for path in sorted(modules):
        content = path.read_bytes()
        name = path.relative_to(package).as_posix().encode()
        digest.update(name + b"\0" + len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
