"""validate: token dataset → report, tasks for batches of work units."""

from typing import Any

from prefect import State, task

from tokenmill.flow import STAGE_TASK, Build, PrefectTasks, TaskBatch, recipe, run_batch


@task(name="validate", **STAGE_TASK)
def validate_batch(batch: TaskBatch) -> State[Any]:
    """Checks a batch of units of the token dataset against their documents."""
    return run_batch(batch)


def validate(build: Build) -> None:
    """Checks the token dataset and writes data/report, unless the stage is up to date."""
    build.stage("validate", recipe.validate, PrefectTasks(validate_batch))
