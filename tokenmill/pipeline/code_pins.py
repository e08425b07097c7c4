"""Pins the digests of tokenmill's code in tokenmill.lock, so that DVC notices another tokenmill."""

import re
from pathlib import Path

import tokenmill
from tokenmill.config.lockfile import read_lock, write_lock
from tokenmill.config.source_params import Source
from tokenmill.console import say
from tokenmill.errors import VersionsError
from tokenmill.filters import asked_values, packages_of
from tokenmill.layout import LOCK_FILE, STAGES
from tokenmill.pipeline.causes import CODE, Cause
from tokenmill.pipeline.code_digest import libraries, output_digest, output_digest_with
from tokenmill_reader.regular_files import read

_DEPENDENCY = re.compile(rf"\bcode\.({'|'.join(STAGES)})\b")


def code_changes(root: Path, source: Source) -> dict[str, Cause]:
    """What changed of the code of each stage for which tokenmill.lock pins other code than is installed. Only stages that depend on
    it count. Raises VersionsError, and ParamsError for a filter of `source` that is not installed."""
    lock, versions = read_lock(root), _versions(source)
    pinned, before = {str(stage): digest for stage, digest in (lock.code or {}).items()}, lock.libraries or {}
    changes = {}
    for stage in _stages_by_code(root):
        if pinned.get(stage) == _digest(stage, versions):
            continue
        if before and output_digest_with(stage, before) == pinned.get(stage):
            names = [*versions, *(before.keys() - versions.keys())]
            words = [
                f"{name} {before.get(name, '(none)')} → {versions.get(name, '(none)')}"
                for name in names
                if before.get(name) != versions.get(name)
            ]
            changes[stage] = Cause("code", f"library changed: {', '.join(words)}")
        elif lock.tokenmill not in (None, tokenmill.__version__):
            changes[stage] = Cause("code", f"{CODE.words}: tokenmill {lock.tokenmill} → {tokenmill.__version__}")
        else:
            changes[stage] = CODE
    return changes


def pin_code(root: Path, source: Source) -> None:
    """Writes the digests of the installed code into tokenmill.lock if they differ or are missing, and says so."""
    if stages := code_changes(root, source):
        lock, versions = read_lock(root), _versions(source)
        code = {stage: _digest(stage, versions) for stage in _stages_by_code(root)}
        update = {"tokenmill": tokenmill.__version__, "code": code, "libraries": versions}
        write_lock(root, lock.model_copy(update=update))
        if lock.code:
            say(f"{LOCK_FILE}: now pins the code that is installed, which differs for {', '.join(stages)}")
        else:
            say(f"{LOCK_FILE}: was missing, or did not pin the code of tokenmill; it does now. Commit it.")


def refuse_other_code(root: Path, source: Source) -> None:
    """Raises VersionsError if tokenmill.lock pins other code than is installed."""
    if changes := code_changes(root, source):
        words = dict.fromkeys(cause.words for cause in changes.values())
        raise VersionsError(
            LOCK_FILE,
            f"pins other code than is installed, for {', '.join(changes)}: {'; '.join(words)}.",
            "Run `tokenmill build` to pin the installed code, or install what is pinned.",
        )


def _versions(source: Source) -> dict[str, str]:
    """The versions of the libraries that decide bytes, and of the packages that filter documents, by name."""
    packages = (package.rpartition(" ") for package in packages_of(asked_values(source)).values())
    return libraries() | {name: version for name, _, version in packages}


def _digest(stage: str, versions: dict[str, str]) -> str:
    return output_digest(stage) if versions == libraries() else output_digest_with(stage, versions)


def _stages_by_code(root: Path) -> list[str]:
    path = root / "dvc.yaml"
    return list(dict.fromkeys(_DEPENDENCY.findall(read(path).decode()))) if path.exists() else []
