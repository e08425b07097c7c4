"""Follows symbolic links in folders of others only where they stay inside: others may put any name there, and any target."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from tokenmill.errors import StorageError
from tokenmill.storage.atomic import raise_it, refuse_other_bytes

_DVC_OBJECT = re.compile(r".*/files/md5/[0-9a-f]{2}/[0-9a-f]{30}")
"""A file of DVC's cache, whose name is its digest: with `cache.type: symlink`, DVC puts links to these in place of outputs."""


def followed(folder: Path, name: str | Path) -> Path:
    """The path of a file in a folder, which may be missing. Links may lead to other files of the folder, to the blobs beside the
    snapshots of a hub's cache, and into DVC's cache. Raises StorageError for a link that leads elsewhere."""
    path = folder / name
    real, inside = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    allowed = [inside] if inside.parent.name != "snapshots" else [inside, inside.parent.parent / "blobs"]
    if any(real.is_relative_to(one) for one in allowed) or _DVC_OBJECT.fullmatch(str(real)):
        return path
    raise StorageError(
        path,
        f"expected a file in its folder; found a symbolic link to {real}, which was not followed.",
        "Remove it, or copy the folder with `cp -rL`, which puts the files themselves in place of links.",
    )


def refuse_links(folder: Path) -> None:
    """Raises what `files_in` raises."""
    for _ in files_in(folder):
        pass


def files_in(folder: Path) -> Iterator[Path]:
    """The files in a folder, at any depth, relative to it and sorted. Raises StorageError for a link that leads out of the folder,
    a FIFO, a socket and a device, and what `refuse_other_bytes` raises."""
    for above, folders, names in os.walk(folder, onerror=raise_it):
        folders.sort()
        for name in sorted([*names, *(one for one in folders if (Path(above) / one).is_symlink())]):
            refuse_other_bytes(Path(above) / name)
            path = followed(folder, (Path(above) / name).relative_to(folder))
            if not stat.S_ISREG(path.stat().st_mode):
                raise StorageError(path, "expected only files and folders; found something else.", "Remove it.")
            yield path.relative_to(folder)
