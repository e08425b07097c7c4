"""Finds the measures and the dataset of the last published version, which gates and the page of the report compare with."""

from pathlib import Path

from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.errors import VersionsError
from tokenmill.layout import DVC_LOCK_FILE, REPORT_FILE, TABLES_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.report.gate_results import Published, flat
from tokenmill.storage.json_files import read_json
from tokenmill.versioning import git
from tokenmill.versioning.dvc_files import recorded_md5
from tokenmill.versioning.dvc_repository import cache_directory
from tokenmill.versioning.registry import versions_in
from tokenmill_reader.manifest import MANIFEST_FILE

_ARTIFACTS = ("dataset", "tokenizer")  # in this order: the dataset's report is about both


def published_report(root: Path) -> Published:
    """The report of the highest version of the artifact dataset among this clone's tags, or else of the artifact tokenizer.

    Reads it from DVC's cache by the digest in that commit's dvc.lock, without fetching. `note` says why measures are unknown.
    """
    try:
        tags = git.tags_of(root, ".")
    except VersionsError:
        return Published(None, {}, "this folder is in no git repository")
    versions = [f"{name}@{version}" for name in _ARTIFACTS for version in reversed(versions_in(tags, name))]
    if not versions:
        return Published(None, {}, "no version is published yet")
    tag = versions[0]
    dataset = _dataset(root, tag)
    path = _recorded(root, tag, REPORT_FILE)
    if path is None:
        return Published(tag, {}, f"{tag} has no {REPORT_FILE} in its {DVC_LOCK_FILE}", dataset)
    try:
        measures = flat(read_json(path)["measures"])
    except FileNotFoundError:
        note = f"the report of {tag} is not in DVC's cache; `git checkout {tag}` and `dvc fetch` bring it"
        return Published(tag, {}, note, dataset)
    except (ValueError, KeyError, AttributeError):
        return Published(tag, {}, f"the report of {tag} has no measures; an earlier tokenmill made it", dataset)
    return Published(tag, {name: value for name, value in measures.items() if value is not None}, dataset=dataset)


def _dataset(root: Path, tag: str) -> tuple[Path, Path] | None:
    """The manifest and the document index of a tag in DVC's cache; None if one of them is not there."""
    paths = []
    for folder, name in ((TOKENS_DIRECTORY, MANIFEST_FILE), (TABLES_DIRECTORY, DOCUMENTS_FILE)):
        try:
            listed = read_json(_recorded(root, tag, folder) or root)
            path = next(_cached(root, entry["md5"]) for entry in listed if entry["relpath"] == name)
        except (OSError, ValueError, KeyError, TypeError, StopIteration):
            return None
        if not path.is_file():
            return None
        paths.append(path)
    return paths[0], paths[1]


def _recorded(root: Path, tag: str, output: str) -> Path | None:
    """The path in DVC's cache of an output as the dvc.lock of a tag records it: of the list of its files, if it is a folder."""
    try:
        md5 = recorded_md5(git.git(root, "show", f"{tag}:./{DVC_LOCK_FILE}"), output)
    except (VersionsError, ValueError):
        return None
    return None if md5 is None else _cached(root, md5)


def _cached(root: Path, md5: str) -> Path:
    return cache_directory(root) / "files/md5" / md5[:2] / md5[2:]
