"""The lock of a project, which one build at a time holds."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenmill.layout import SCRATCH_DIRECTORY
from tokenmill.pipeline.own_step import bring_back
from tokenmill.storage import file_facts, lock
from tokenmill.storage.unit_store import UnitStore
from tokenmill.storage.writable import check_writable
from tokenmill.versioning import dvc_repository, dvc_view, leftovers


@contextmanager
def alone(root: Path, wait: bool, force: bool = False, rehash: bool = False) -> Iterator[None]:
    """Holds the project lock, and first removes what a killed build left behind. Raises BusyError or VersionsError.

    `rehash` deletes stored facts about files instead of ignoring them, so that if this build is stopped, the next one hashes
    the same files. `force` or `rehash` also deletes DVC's stored hashes; with them, DVC might link a newly made file to an old
    file in its cache.
    """

    cache = dvc_repository.cache_directory(root)
    check_writable([root / SCRATCH_DIRECTORY, root / ".dvc", root / ".dvc/tmp", cache / "files/md5", cache / "runs"])

    def clean() -> None:
        leftovers.remove_own(root)
        if not under_dvc():
            dvc_repository.mend(root)
            bring_back(root)

    with lock.project_lock(root, wait, clean) as is_first:
        if is_first and rehash:
            file_facts.forget(root)
            UnitStore(root).remove_all_damaged()
        if is_first and (rehash or force) and not under_dvc():
            dvc_repository.forget_hashes(root)
        try:
            yield
        finally:
            if is_first:
                dvc_view.see_all(root.absolute())


def under_dvc() -> bool:
    """Whether `dvc repro` started this process for one stage. If so, DVC decides, locks and records."""
    return "DVC_STAGE" in os.environ
