"""publish: an up-to-date build → a version that others can fetch, in three tasks."""

from pathlib import Path

from prefect import task

from tokenmill.orchestration.prefect_tasks import STAGE_TASK
from tokenmill.stages import publish as steps
from tokenmill.versioning.publish import Publication


@task(**STAGE_TASK)
def check(root: Path, reference: str, stage: str | None) -> Publication:
    """The publication. Raises VersionsError or ParamsError if the version must not be published."""
    return steps.check(root, reference, stage)


@task(**STAGE_TASK)
def push_data(publication: Publication, remote: str | None) -> None:
    """Pushes the data to the DVC remote, and prints how many files were new there."""
    steps.push_data(publication, remote)


@task(**STAGE_TASK)
def set_tags(publication: Publication, key: Path | None) -> list[str]:
    """Registers the version as git tags, and prints where they are."""
    return steps.set_tags(publication, key)
