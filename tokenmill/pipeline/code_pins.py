"""Which code of tokenmill makes a project's outputs: tokenmill.lock has its digests, so that DVC sees another tokenmill."""

import re
from pathlib import Path

import tokenmill
from tokenmill.config.lockfile import read_lock, write_lock
from tokenmill.console import say
from tokenmill.errors import VersionsError
from tokenmill.layout import LOCK_FILE, STAGES
from tokenmill.pipeline.code_digest import code_digest

_DEPENDENCY = re.compile(rf"\bcode\.({'|'.join(STAGES)})\b")


def stages_of_other_code(root: Path) -> list[str]:
    """The stages that dvc.yaml makes depend on their code in tokenmill.lock, where that is not the code of this tokenmill.

    Raises VersionsError.
    """
    pinned = {str(stage): digest for stage, digest in (read_lock(root).code or {}).items()}
    return [stage for stage in _stages_by_code(root) if pinned.get(stage) != code_digest(stage)]


def pin_code(root: Path) -> None:
    """Puts the code of this tokenmill into tokenmill.lock, if it lacks it or has another, and says so."""
    if stages := stages_of_other_code(root):
        lock = read_lock(root)
        code = {stage: code_digest(stage) for stage in _stages_by_code(root)}
        write_lock(root, lock.model_copy(update={"tokenmill": tokenmill.__version__, "code": code}))
        if lock.code:
            say(f"{LOCK_FILE}: has the code of this tokenmill now, which is another for {', '.join(stages)}")
        else:
            say(f"{LOCK_FILE}: was missing, or lacked the code of tokenmill; has it now. Commit it.")


def refuse_other_code(root: Path) -> None:
    """Raises VersionsError when tokenmill.lock has not the code of this tokenmill."""
    if stages := stages_of_other_code(root):
        pinned = read_lock(root).tokenmill or "none"
        raise VersionsError(
            f"{LOCK_FILE}: has the code of tokenmill {pinned}; that of {tokenmill.__version__}, which is installed, is another "
            f"for {', '.join(stages)}. Run `tokenmill build`, which takes it, or install the other one."
        )


def _stages_by_code(root: Path) -> list[str]:
    path = root / "dvc.yaml"
    return list(dict.fromkeys(_DEPENDENCY.findall(path.read_text(encoding="utf-8")))) if path.exists() else []
