"""validate: token dataset → report, tasks for batches of work units."""

from typing import Any

from prefect import State, task

from tokenmill.orchestration.prefect_tasks import STAGE_TASK, PrefectTasks, run_batch
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.task_batches import TaskBatch
from tokenmill.stages import recipe


@task(name="validate", **STAGE_TASK)
def validate_batch(batch: TaskBatch) -> State[Any]:
    """Checks a batch of units of the token dataset against their documents."""
    return run_batch(batch)


def validate(build: Build) -> None:
    """Checks the token dataset and writes data/report, unless the stage is up to date."""
    build.stage("validate", recipe.validate, PrefectTasks(validate_batch))
