"""publish: an up-to-date build → a version that others can fetch."""

from pathlib import Path

from tokenmill.config.load_params import load_params
from tokenmill.console import say
from tokenmill.features import every_part
from tokenmill.layout import PARAMS_FILE
from tokenmill.pipeline.alone import alone
from tokenmill.quantities import number_of
from tokenmill.versioning.git import branch_to_push
from tokenmill.versioning.publish import Publication, push, ready, register
from tokenmill.versioning.registry import parse_reference


def publish(root: Path, reference: str, stage: str | None, remote: str | None, key: Path | None) -> list[str]:
    """Publishes NAME@VERSION: checks the build, pushes the data, and sets the git tags, which are returned.

    `stage`: the GTO stage to assign. `remote`: the DVC remote; None: DVC's default. `key`: a private key to sign with. After
    an interruption at any moment, a second call completes the publication; of a version that is published already, it sets no
    tag. Raises BusyError, VersionsError, ParamsError, TokenizerError.
    """
    with alone(root, wait=False):
        publication = check(root, reference, stage)
        push_data(publication, remote)
        return set_tags(publication, key)


def check(root: Path, reference: str, stage: str | None) -> Publication:
    """The publication. Raises VersionsError or ParamsError if the version must not be published."""
    publication = ready(root, parse_reference(reference), stage)
    params = load_params(root / PARAMS_FILE)
    for refuse in every_part("before_publish"):
        refuse(root, params)
    return publication


def push_data(publication: Publication, remote: str | None) -> None:
    """Pushes the data to the DVC remote, and prints how many files of each kind were new there."""
    pushed = push(publication, remote)
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in pushed.items())
    n_files = number_of(sum(pushed.values()), "file")
    words = f"{n_files} pushed: {kinds}" if pushed else "the DVC remote already has every file"
    say(f"publish: {words}")


def set_tags(publication: Publication, key: Path | None) -> list[str]:
    """Registers the version as git tags, and prints where they are, or that all were set before."""
    tags = register(publication, key)
    where = f"pushed to {publication.git_remote}" if publication.git_remote else "in this repository: git has no remote"
    if tags:
        say(f"publish: {' and '.join(tags)}, {where}")
    else:
        of_stage = f" with the stage {publication.assign}" if publication.assign else ""
        say(f"publish: {publication.tag} is published already{of_stage}: nothing to do")
    if publication.git_remote and (branch := branch_to_push(publication.root, publication.git_remote)):
        say(
            f"publish: the branch {branch} was not pushed; others can fetch the version without it. To push it: "
            f"`git push {publication.git_remote} {branch}`"
        )
    return tags
