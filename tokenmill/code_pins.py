"""Which code of tokenmill makes a project's outputs: tokenmill.lock has its digests, so that DVC sees another tokenmill."""

from pathlib import Path

import tokenmill
from tokenmill.code import code_digest
from tokenmill.console import say
from tokenmill.errors import VersionsError
from tokenmill.layout import LOCK_FILE
from tokenmill.pins import read_lock, write_lock


def stages_of_other_code(root: Path) -> list[str]:
    """The stages whose code is not what tokenmill.lock has; none where it has no code. Raises VersionsError."""
    return [stage for stage, digest in (read_lock(root).code or {}).items() if code_digest(stage) != digest]


def pin_code(root: Path) -> None:
    """Puts the code of this tokenmill into tokenmill.lock, if it has another, and says so."""
    if stages := stages_of_other_code(root):
        lock = read_lock(root)
        code = {stage: code_digest(stage) for stage in lock.code or {}}
        write_lock(root, lock.model_copy(update={"tokenmill": tokenmill.__version__, "code": code}))
        say(f"{LOCK_FILE}: has the code of this tokenmill now, which is another for {', '.join(stages)}")


def refuse_other_code(root: Path) -> None:
    """Raises VersionsError when tokenmill.lock has the code of another tokenmill."""
    if stages := stages_of_other_code(root):
        raise VersionsError(
            f"{LOCK_FILE}: has the code of tokenmill {read_lock(root).tokenmill}; that of {tokenmill.__version__}, which is "
            f"installed, is another for {', '.join(stages)}. Run `tokenmill build`, which takes it, or install the other one."
        )
