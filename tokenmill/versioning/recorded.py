"""Reads what a commit of a repository records of an artifact: names and md5 in dvc.yaml, dvc.lock and .dvc files, as plain data.

DVC itself is not asked. For a repository of others it would run its imports, copy files of this machine that a `deps` names, and
ask the hosts in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath
from typing import Any

from ruamel.yaml.error import YAMLError

from tokenmill.config import bounded_yaml
from tokenmill.errors import VersionsError
from tokenmill.versioning import git

_PIPELINE, _LOCK, _SUFFIX = "dvc.yaml", "dvc.lock", ".dvc"
_N_DVC_FILES_MAX = 1000


@dataclass(frozen=True)
class Tree:
    """The files of a commit. `clone`: a git repository that has it. `above`: DVC's root in it, empty or with a slash at its end."""

    clone: Path
    commit: str
    above: str = ""

    def text(self, path: str) -> str | None:
        """The text of a file, whose path is relative to DVC's root; None if there is none."""
        return git.text_at(self.clone, self.commit, self.above + path, bounded_yaml.DVC_CHARACTERS_MAX)

    def mapping(self, path: str) -> dict[Any, Any]:
        """The mapping in a YAML file; empty if there is no such file. Raises VersionsError."""
        text = self.text(path)
        try:
            found = {} if text is None else bounded_yaml.load_of_dvc(text)
        except YAMLError as error:
            raise VersionsError(path, f"{error}.") from None
        return found if isinstance(found, dict) else {}

    def dvc_files(self, folder: str) -> list[str]:
        """The .dvc files in a folder; the root is empty, any other ends with a slash."""
        names = git.names_at(self.clone, self.commit, self.above + folder)
        found = [name.removeprefix(self.above) for name in names if name.endswith(_SUFFIX)]
        return found[:_N_DVC_FILES_MAX]


@dataclass(frozen=True)
class Recorded:
    """The record of an output. `md5`: the digest of its bytes; with .dir, that of the list of a folder's files. `below`: the names
    in that list that are meant begin with it. `is_of_dvc_2`: the md5 is of text without carriage returns, and the objects have
    other paths."""

    md5: str
    below: str
    is_of_dvc_2: bool


def artifact_path(tree: Tree, name: str) -> str:
    """The path of an artifact. Raises VersionsError if dvc.yaml has none of this name, or one outside of the repository."""
    artifacts = tree.mapping(_PIPELINE).get("artifacts")
    entry = artifacts.get(name) if isinstance(artifacts, dict) else None
    path = entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(path, str):
        raise VersionsError(_PIPELINE, f"there is no artifact {name!r} with a path.", "Take another version.")
    return _inside(_PIPELINE, path)


def find(tree: Tree, path: str) -> Recorded | None:
    """Finds the record of an output, or of the folder around it. Gives None if there is none.

    A file that cannot be read may belong to another project in the repository. It is an error only if no other file has the record.
    Raises VersionsError for that, and for a record without an md5: then nothing but an import by DVC could say what it is,
    and that is not done."""
    unread: list[VersionsError] = []
    for place, out_path, out in _outs(tree, path, unread):
        if path != out_path and not path.startswith(f"{out_path}/"):
            continue
        md5 = out.get("md5")
        if not isinstance(md5, str) or not git.MD5.fullmatch(md5):
            raise VersionsError(
                place,
                f"has no md5 for {out_path}, so it is not known which bytes were published.",
                "Take a version whose files DVC has recorded.",
            )
        return Recorded(md5, path.removeprefix(out_path).lstrip("/"), out.get("hash") != "md5")
    if unread:
        raise unread[0]
    return None


def _outs(tree: Tree, path: str, unread: list[VersionsError]) -> Iterator[tuple[str, str, dict[Any, Any]]]:
    """Yields the outputs that the files of DVC in the folders above a path record: the file, the path of the output, and its entry.
    Files with the name of an output come first. `unread` gets the errors of files that cannot be read."""

    def mapping(name: str) -> dict[Any, Any]:
        try:
            return tree.mapping(name)
        except VersionsError as error:
            unread.append(error)
            return {}

    parts = path.split("/")
    for n in range(len(parts) - 1, -1, -1):
        folder = "".join(f"{part}/" for part in parts[:n])
        likely = f"{folder}{parts[n]}{_SUFFIX}"
        for name in dict.fromkeys([likely, *tree.dvc_files(folder)]):
            yield from _outs_of(name, folder, mapping(name))
        pipeline = _mapping(mapping(f"{folder}{_PIPELINE}").get("stages"))
        for stage, entry in _mapping(mapping(f"{folder}{_LOCK}").get("stages")).items():
            if isinstance(entry, dict):
                of_stage = _mapping(pipeline.get(str(stage).partition("@")[0]))
                yield from _outs_of(f"{folder}{_LOCK}", folder, {**entry, "wdir": of_stage.get("wdir")})


def _outs_of(place: str, folder: str, entry: dict[Any, Any]) -> Iterator[tuple[str, str, dict[Any, Any]]]:
    outs, wdir = entry.get("outs"), entry.get("wdir")
    for out in outs if isinstance(outs, list) else ():
        if isinstance(out, dict) and isinstance(out.get("path"), str):
            within = f"{folder}{wdir}/" if isinstance(wdir, str) else folder
            yield place, normpath(within + out["path"]), out


def _mapping(found: Any) -> dict[Any, Any]:
    return found if isinstance(found, dict) else {}


def _inside(place: str, path: str) -> str:
    normal_path = normpath(path)
    if normal_path.startswith(("/", "..")) or "\0" in normal_path:
        raise VersionsError(
            place, f"found the path {path!r:.200}, expected one inside the repository.", "Do not use it."
        )
    return normal_path
