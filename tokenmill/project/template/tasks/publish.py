"""publish: a build that is up to date → a version that others can take, in three tasks."""

from pathlib import Path

from prefect import task

from tokenmill.orchestration.unit_tasks import STAGE_TASK
from tokenmill.stages import publish as steps
from tokenmill.versioning.publish import Publication


@task(**STAGE_TASK)
def check(root: Path, reference: str, stage: str | None) -> Publication:
    """The publication, when the version may be published."""
    return steps.check(root, reference, stage)


@task(**STAGE_TASK)
def push_data(publication: Publication, remote: str | None) -> None:
    """Brings the data to DVC's remote, and says how much was new there."""
    steps.push_data(publication, remote)


@task(**STAGE_TASK)
def set_tags(publication: Publication, key: Path | None) -> list[str]:
    """Registers the version and says where."""
    return steps.set_tags(publication, key)
