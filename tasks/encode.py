"""encode: documents and tokenizer → token dataset, one task per work unit."""

from functools import partial
from typing import Any

from prefect import State, task

from tokenmill.corpus.units import Unit
from tokenmill.orchestration.unit_tasks import STAGE_TASK, Do, finished, map_units
from tokenmill.pipeline.build import Build
from tokenmill.stages import recipe


@task(name="encode", **STAGE_TASK)
def encode_unit(unit: Unit, do: Do) -> State[Any]:
    """Encodes one unit of documents into one file of tokens."""
    return finished("encode", unit, do)


def encode(build: Build) -> None:
    """Encodes all documents into data/tokens, unless the stage is up to date."""
    build.stage("encode", partial(recipe.encode, run_units=map_units(encode_unit)))
