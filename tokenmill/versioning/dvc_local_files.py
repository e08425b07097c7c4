"""The file system through which DVC's repository reads a project.

DVC's own file system silently treats a folder that it cannot list as empty, and blocks forever when it opens a FIFO.
"""

import os
from collections.abc import Iterator
from typing import Any

from dvc_objects.fs.local import FsspecLocalFileSystem, LocalFileSystem

from tokenmill.storage.atomic import raise_it
from tokenmill_reader.regular_files import open_regular, open_small


class _ProjectFiles(FsspecLocalFileSystem):
    def walk(
        self, path: str, maxdepth: int | None = None, topdown: bool = True, detail: bool = False, **named: Any
    ) -> Iterator[tuple[str, Any, Any]]:
        """The folders with their contents. Raises OSError for a folder that cannot be listed."""
        if detail:  # DVC uses it only with file systems that are not local
            yield from super().walk(path, maxdepth, topdown, detail, **named)  # type: ignore[no-untyped-call]
            return
        for folder, folders, files in os.walk(path, topdown, onerror=raise_it):
            yield os.path.normpath(folder), folders, files

    def open(self, path: str, mode: str = "r", encoding: str | None = None, **_: Any) -> Any:
        """The open file. Raises OSError if the path to read is not a regular file, or is text of more than 512 MiB."""
        opener = open_small if mode == "r" else open_regular if "r" in mode else None
        return open(path, mode, encoding=encoding, opener=opener)


def project_files() -> LocalFileSystem:
    """The file system for `dvc.repo.Repo(..., fs=)`."""
    return LocalFileSystem(fs=_ProjectFiles())  # type: ignore[no-untyped-call]
