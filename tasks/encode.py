"""encode: documents and tokenizer → token dataset, tasks for batches of work units."""

from typing import Any

from prefect import State, task

from tokenmill.flow import STAGE_TASK, Build, PrefectTasks, TaskBatch, recipe, run_batch


@task(name="encode", **STAGE_TASK)
def encode_batch(batch: TaskBatch) -> State[Any]:
    """Encodes a batch of units of documents, each into one file of tokens."""
    return run_batch(batch)


def encode(build: Build) -> None:
    """Encodes all documents into data/tokens, unless the stage is up to date."""
    build.stage("encode", recipe.encode, PrefectTasks(encode_batch))
