"""publish: a build that is up to date → a version that others can take."""

from pathlib import Path

from tokenmill.console import say
from tokenmill.pipeline.build import alone
from tokenmill.versioning.git import branch_to_push
from tokenmill.versioning.publish import Publication, push, ready, register
from tokenmill.versioning.registry import parse_reference


def publish(root: Path, reference: str, stage: str | None, remote: str | None, key: Path | None) -> list[str]:
    """Publishes NAME@VERSION: checks, pushes the data, sets the tags, and gives them back.

    `stage`: GTO's stage to assign; `remote`: DVC's, None for its default; `key`: a private key to sign with. Stopped at any
    moment, it is run again and goes on. Raises BusyError, VersionsError, ParamsError, TokenizerError.
    """
    with alone(root, wait=False):
        publication = check(root, reference, stage)
        push_data(publication, remote)
        return set_tags(publication, key)


def check(root: Path, reference: str, stage: str | None) -> Publication:
    """The publication, when the version may be published."""
    return ready(root, parse_reference(reference), stage)


def push_data(publication: Publication, remote: str | None) -> None:
    """Brings the data to DVC's remote, and says how much was new there."""
    n_pushed = push(publication, remote)
    say(f"publish: {n_pushed} files pushed" if n_pushed else "publish: DVC's remote has every file already")


def set_tags(publication: Publication, key: Path | None) -> list[str]:
    """Registers the version and says where."""
    tags = register(publication, key)
    where = f"pushed to {publication.git_remote}" if publication.git_remote else "in this repository: git has no remote"
    say(f"publish: {' and '.join(tags) or publication.tag}, {where}")
    if publication.git_remote and (branch := branch_to_push(publication.root, publication.git_remote)):
        say(
            f"publish: the branch {branch} was not pushed; others can take the version all the same. To push it: "
            f"`git push {publication.git_remote} {branch}`"
        )
    return tags
