"""count: documents → exact counts of pre-tokens, tasks for batches of work units."""

from typing import Any

from prefect import State, task

from tokenmill.flow import STAGE_TASK, Build, PrefectTasks, TaskBatch, recipe, run_batch


@task(name="count", **STAGE_TASK)
def count_batch(batch: TaskBatch) -> State[Any]:
    """Counts the pre-tokens of a batch of units of documents."""
    return run_batch(batch)


def count(build: Build) -> None:
    """Counts the pre-tokens of all documents into data/counts, unless the stage is up to date."""
    build.stage("count", recipe.count, PrefectTasks(count_batch))
