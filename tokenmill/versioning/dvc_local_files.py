"""The file system that DVC sees a project through, given to its repository.

DVC's own passes over a folder that it cannot list, as if it were empty, and waits for ever when it opens a FIFO.
"""

import os
from collections.abc import Iterator
from typing import Any

from dvc_objects.fs.local import FsspecLocalFileSystem, LocalFileSystem

from tokenmill.storage.atomic import open_regular, raise_it


class _ProjectFiles(FsspecLocalFileSystem):
    def walk(
        self, path: str, maxdepth: int | None = None, topdown: bool = True, detail: bool = False, **named: Any
    ) -> Iterator[tuple[str, Any, Any]]:
        """The folders with what is in them. Raises OSError for one that cannot be listed."""
        if detail:  # DVC asks for it only on other than local file systems
            yield from super().walk(path, maxdepth, topdown, detail, **named)  # type: ignore[no-untyped-call]
            return
        for folder, folders, files in os.walk(path, topdown, onerror=raise_it):
            yield os.path.normpath(folder), folders, files

    def open(self, path: str, mode: str = "r", encoding: str | None = None, **_: Any) -> Any:
        """The open file. Raises OSError for what is read and is no file."""
        return open(path, mode, encoding=encoding, opener=open_regular if "r" in mode else None)


def project_files() -> LocalFileSystem:
    """For `dvc.repo.Repo(..., fs=)`."""
    return LocalFileSystem(fs=_ProjectFiles())  # type: ignore[no-untyped-call]
