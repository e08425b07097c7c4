"""publish: an up-to-date build → a version that others can fetch, in three tasks."""

from pathlib import Path

from prefect import task

from tokenmill.flow import STAGE_TASK, Publication, publish_steps


@task(**STAGE_TASK)
def check(root: Path, reference: str, stage: str | None) -> Publication:
    """The publication. Raises VersionsError or ParamsError if the version must not be published."""
    return publish_steps.check(root, reference, stage)


@task(**STAGE_TASK)
def push_data(publication: Publication, remote: str | None) -> None:
    """Pushes the data to the DVC remote, and prints how many files were new there."""
    publish_steps.push_data(publication, remote)


@task(**STAGE_TASK)
def set_tags(publication: Publication, key: Path | None) -> list[str]:
    """Registers the version as git tags, and prints where they are."""
    return publish_steps.set_tags(publication, key)
