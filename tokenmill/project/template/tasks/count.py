"""count: documents → exact counts of pre-tokens, one task per work unit."""

from functools import partial
from typing import Any

from prefect import State, task

from tokenmill.corpus.units import Unit
from tokenmill.orchestration.unit_tasks import STAGE_TASK, Do, finished, map_units
from tokenmill.pipeline.build import Build
from tokenmill.stages import recipe


@task(name="count", **STAGE_TASK)
def count_unit(unit: Unit, do: Do) -> State[Any]:
    """Counts the pre-tokens of one unit of documents."""
    return finished("count", unit, do)


def count(build: Build) -> None:
    """Counts the pre-tokens of all documents into data/counts, unless the stage is up to date."""
    build.stage("count", partial(recipe.count, run_units=map_units(count_unit)))
