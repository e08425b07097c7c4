"""encode: documents and tokenizer → token dataset, tasks for batches of work units."""

from functools import partial
from typing import Any

from prefect import State, task

from tokenmill.orchestration.unit_tasks import STAGE_TASK, Do, finished, map_units
from tokenmill.pipeline.batches import Batch
from tokenmill.pipeline.build import Build
from tokenmill.stages import recipe


@task(name="encode", **STAGE_TASK)
def encode_units(batch: Batch, do: Do) -> State[Any]:
    """Encodes a batch of units of documents, each into one file of tokens."""
    return finished("encode", batch, do)


def encode(build: Build) -> None:
    """Encodes all documents into data/tokens, unless the stage is up to date."""
    build.stage("encode", partial(recipe.encode, run_units=map_units(encode_units)))
