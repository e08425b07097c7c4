"""train-vocab: counts of pre-tokens → tokenizer, as one task. Importing a published tokenizer needs no task."""

from typing import Any

from prefect import State, task

from tokenmill.flow import STAGE_TASK, Build, OneTask, TaskBatch, recipe, run_batch


@task(name="train-vocab", **STAGE_TASK)
def train(batch: TaskBatch) -> State[Any]:
    """Learns the tokenizer."""
    return run_batch(batch)


def train_vocab(build: Build) -> None:
    """Trains or imports the tokenizer in data/tokenizer, unless the stage is up to date."""
    build.stage("train-vocab", recipe.train_vocab, OneTask(train))
