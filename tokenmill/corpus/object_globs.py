"""Finds the objects in object storage that a glob matches."""

import fnmatch
import glob as globbing
from collections.abc import Sequence
from functools import partial

from tokenmill.errors import CorpusError
from tokenmill.storage.anywhere import list_objects
from tokenmill.storage.retries import with_patience
from tokenmill.storage.urls import StoredObject
from tokenmill_reader.urls import place

_N_NAMES_SHOWN = 5


def find_objects(glob: str, setting: str, listings: dict[str, list[StoredObject]]) -> list[StoredObject]:
    """The objects that a glob like s3://bucket/web/**/*.jsonl.zst matches, in no certain order, as the globs of files match.

    Lists everything below the longest part without `*`, `?` and `[`. `setting`: the parameter with the glob, for error messages.
    `listings`: a cache of listings by folder, to which this adds. Raises CorpusError if it matches nothing, StorageError, and
    PassingError if the storage cannot be reached.
    """
    where = place(glob)
    parts = where.key.split("/")
    n_plain = next((i for i, part in enumerate(parts) if globbing.has_magic(part)), len(parts) - 1)
    folder = where._replace(key="/".join(parts[:n_plain])).url.rstrip("/")
    if folder not in listings:
        listings[folder] = with_patience(partial(list_objects, folder))
    listed = listings[folder]
    matching = []
    for listed_object in listed:
        names = place(listed_object.url).key.split("/")
        if names[:n_plain] == parts[:n_plain] and matches(names[n_plain:], parts[n_plain:]):
            matching.append(listed_object)
    if not matching:
        raise _nothing_matches(glob, setting, folder, listed)
    return matching


def stored_objects(urls: Sequence[str]) -> dict[str, StoredObject]:
    """The present state of these objects, by URL, without missing ones. Lists the folders that hold them. Raises StorageError and
    PassingError."""
    folders = {url.rpartition("/")[0] for url in urls}
    wanted = set(urls)
    objects: dict[str, StoredObject] = {}
    for folder in sorted(folders):
        if any(folder.startswith(f"{other}/") for other in folders):
            continue  # the listing of the folder above has them
        objects |= {one.url: one for one in with_patience(partial(list_objects, folder)) if one.url in wanted}
    return objects


def matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the parts of a glob match a path. `**` matches any number of folders, at the end also everything below. No wildcard
    matches a name that begins with a dot.

    >>> matches(["a", "b", "c.txt"], ["**", "*.txt"]), matches(["c.txt"], ["**", "*.txt"]), matches(["a", "c.txt"], ["*.txt"])
    (True, True, False)
    """
    reached = {0}  # the numbers of parts that the names so far may match
    for name in names:
        through = _with_empty(reached, parts)
        reached = set()
        for i in through:
            if i == len(parts):
                continue
            if parts[i] == "**" and not name.startswith("."):
                reached |= {i, i + 1} if i == len(parts) - 1 else {i}
            elif parts[i] != "**" and _matches(name, parts[i]):
                reached.add(i + 1)
    return len(parts) in reached


def _with_empty(reached: set[int], parts: Sequence[str]) -> set[int]:
    """Adds the positions after each `**`, which may match no folder; a `**` at the end matches at least one name."""
    positions = set(reached)
    for i in sorted(reached):
        while i < len(parts) - 1 and parts[i] == "**":
            i += 1
            positions.add(i)
    return positions


def _matches(name: str, part: str) -> bool:
    return fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))


def _nothing_matches(glob: str, setting: str, folder: str, listed: Sequence[StoredObject]) -> CorpusError:
    if folder + "/" + place(glob).key.rpartition("/")[2] == glob and any(
        listed_object.url.startswith(f"{glob}/") for listed_object in listed
    ):
        inside = f"'{glob}/**/*' matches what is in it, at any depth."
        return CorpusError(setting, f"expected objects that match {glob!r}; found a folder.", inside, code="TM203")
    below = sorted({listed_object.url[len(folder) + 1 :].split("/")[0] for listed_object in listed})
    more = f" and {len(below) - _N_NAMES_SHOWN} more" if len(below) > _N_NAMES_SHOWN else ""
    there = (
        f"{folder}/ holds {', '.join(below[:_N_NAMES_SHOWN])}{more}" if below else f"there is nothing below {folder}/"
    )
    what = f"expected objects that match {glob!r}; found none: {there}."
    return CorpusError(setting, what, f"Correct {setting}, or put objects there.", code="TM203")
