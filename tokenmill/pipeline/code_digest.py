"""The digest of the code that makes a stage's outputs, so that outputs of other code are never reused.

A stage depends on whole rooms, the folders of tokenmill/ that decide bytes, and on its own module in tokenmill/stages/. The
other rooms decide how a build runs but not what it makes, so a change there makes no output stale.
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
"""The rooms that decide the bytes of each stage's outputs, beside the stage's own module. dvc.yaml names the same rooms."""


@functools.cache
def code_digest(stage: str, package: Path = _PACKAGE) -> str:
    """The sha256, in hex, over the stage's rooms and module, the core's sources, and the version of pyarrow, which is written
    into output files. `stage`: the name in dvc.yaml.

    Other packages are assumed to have the versions of requirements.lock.
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
