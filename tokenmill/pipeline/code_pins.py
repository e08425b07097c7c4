"""Pins the digests of tokenmill's code in tokenmill.lock, so that DVC notices another tokenmill."""

import re
from pathlib import Path

import tokenmill
from tokenmill.config.lockfile import read_lock, write_lock
from tokenmill.console import say
from tokenmill.errors import VersionsError
from tokenmill.layout import LOCK_FILE, STAGES
from tokenmill.pipeline.causes import CODE, Cause
from tokenmill.pipeline.code_digest import libraries, output_digest, output_digest_with
from tokenmill_reader.regular_files import read

_DEPENDENCY = re.compile(rf"\bcode\.({'|'.join(STAGES)})\b")


def stages_of_other_code(root: Path) -> list[str]:
    """The stages for which tokenmill.lock pins other code than this tokenmill's. Only stages that depend on it count.

    Raises VersionsError.
    """
    pinned = {str(stage): digest for stage, digest in (read_lock(root).code or {}).items()}
    return [stage for stage in _stages_by_code(root) if pinned.get(stage) != output_digest(stage)]


def code_changes(root: Path) -> dict[str, Cause]:
    """What changed of the code of each stage for which tokenmill.lock pins other code. Raises VersionsError."""
    lock = read_lock(root)
    pinned, before = {str(stage): digest for stage, digest in (lock.code or {}).items()}, lock.libraries or {}
    changes = {}
    for stage in stages_of_other_code(root):
        if before and output_digest_with(stage, before) == pinned.get(stage):
            words = [
                f"{name} {before.get(name)} → {now}" for name, now in libraries().items() if before.get(name) != now
            ]
            changes[stage] = Cause("code", f"library changed: {', '.join(words)}")
        elif lock.tokenmill not in (None, tokenmill.__version__):
            changes[stage] = Cause("code", f"{CODE.words}: tokenmill {lock.tokenmill} → {tokenmill.__version__}")
        else:
            changes[stage] = CODE
    return changes


def pin_code(root: Path) -> None:
    """Writes the code digests of this tokenmill into tokenmill.lock if they differ or are missing, and says so."""
    if stages := stages_of_other_code(root):
        lock = read_lock(root)
        code = {stage: output_digest(stage) for stage in _stages_by_code(root)}
        update = {"tokenmill": tokenmill.__version__, "code": code, "libraries": libraries()}
        write_lock(root, lock.model_copy(update=update))
        if lock.code:
            say(f"{LOCK_FILE}: now pins the code of this tokenmill, which differs for {', '.join(stages)}")
        else:
            say(f"{LOCK_FILE}: was missing, or did not pin the code of tokenmill; it does now. Commit it.")


def refuse_other_code(root: Path) -> None:
    """Raises VersionsError if tokenmill.lock pins other code than this tokenmill's."""
    if stages := stages_of_other_code(root):
        pinned = read_lock(root).tokenmill or "none"
        raise VersionsError(
            LOCK_FILE,
            f"pins the code of tokenmill {pinned}; the installed {tokenmill.__version__} has other code for "
            f"{', '.join(stages)}.",
            "Run `tokenmill build` to pin the installed code, or install the pinned version.",
        )


def _stages_by_code(root: Path) -> list[str]:
    path = root / "dvc.yaml"
    return list(dict.fromkeys(_DEPENDENCY.findall(read(path).decode()))) if path.exists() else []
