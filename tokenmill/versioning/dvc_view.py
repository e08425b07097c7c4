"""Limits what DVC sees of the input folders to the files that existed when the build began."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_views: dict[Path, "Snapshot"] = {}


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of the file names in some folders. `files`: names relative to each folder, by its absolute path."""

    files: dict[str, frozenset[str]]

    @classmethod
    def of(cls, folders: Iterable[Path]) -> "Snapshot":
        """The snapshot of these folders now. Skips paths that are no folders."""
        return cls({os.path.abspath(folder): frozenset(_names(folder)) for folder in folders if folder.is_dir()})  # noqa: PTH100

    def has_arrived(self, path: str) -> bool:
        """Whether the file at an absolute path is in one of the folders but not in the snapshot. False behind a link to a folder,
        whose files are not listed."""
        for folder, names in self.files.items():
            name = path.removeprefix(f"{folder}{os.sep}")
            if name != path:
                return name not in names and not _is_linked(folder, name)
        return False


def see(root: Path, folders: Iterable[Path]) -> None:
    """Hides files that arrive in these folders from now on from DVC in this process, until `see_all` of the project."""
    _views[root] = Snapshot.of(folders)


def has_arrived(root: Path, path: Path) -> bool:
    """Whether a file is hidden from DVC in the project at `root`."""
    return root in _views and _views[root].has_arrived(os.path.abspath(path))  # noqa: PTH100 — DVC does not follow links


def see_all(root: Path) -> None:
    """Lets DVC see every file again."""
    _views.pop(root, None)


def walk_seen(root: str, folders: Any, files: Any) -> Any:
    """An entry of `os.walk` without hidden files. `files`, also in the result: a list, or a dictionary by name."""
    for view in _views.values():
        for folder, names in view.files.items():
            if root == folder or root.startswith(f"{folder}{os.sep}"):
                begin = "" if root == folder else f"{root[len(folder) + 1 :]}{os.sep}"
                if isinstance(files, dict):
                    return root, folders, {name: one for name, one in files.items() if f"{begin}{name}" in names}
                return root, folders, [name for name in files if f"{begin}{name}" in names]
    return root, folders, files


def _names(folder: Path) -> Iterator[str]:
    for root, _folders, files in os.walk(folder):
        begin = os.path.relpath(root, folder)
        yield from (files if begin == "." else (f"{begin}{os.sep}{name}" for name in files))


def _is_linked(folder: str, name: str) -> bool:
    return any(Path(folder, parent).is_symlink() for parent in list(Path(name).parents)[:-1])
