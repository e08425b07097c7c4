"""Reads the measures of the last published version, for the gates that compare with it."""

from pathlib import Path

from tokenmill.errors import VersionsError
from tokenmill.layout import DVC_LOCK_FILE, REPORT_FILE
from tokenmill.report.gate_results import Published, flat
from tokenmill.storage.json_files import read_json
from tokenmill.versioning import git
from tokenmill.versioning.dvc_files import recorded_md5
from tokenmill.versioning.dvc_repository import cache_directory
from tokenmill.versioning.registry import versions_in

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
    md5 = _recorded_md5(root, tag)
    if md5 is None:
        return Published(tag, {}, f"{tag} has no {REPORT_FILE} in its {DVC_LOCK_FILE}")
    try:
        content = read_json(cache_directory(root) / "files/md5" / md5[:2] / md5[2:])
        measures = flat(content["measures"])
    except FileNotFoundError:
        return Published(
            tag, {}, f"the report of {tag} is not in DVC's cache; `git checkout {tag}` and `dvc fetch` bring it"
        )
    except (ValueError, KeyError, AttributeError):
        return Published(tag, {}, f"the report of {tag} has no measures; an earlier tokenmill made it")
    return Published(tag, {name: value for name, value in measures.items() if value is not None})


def _recorded_md5(root: Path, tag: str) -> str | None:
    """The md5 of the report as the dvc.lock of a tag records it."""
    try:
        return recorded_md5(git.git(root, "show", f"{tag}:./{DVC_LOCK_FILE}"), REPORT_FILE)
    except (VersionsError, ValueError):
        return None
