"""validate: token dataset → report, one task per work unit."""

from functools import partial
from typing import Any

from prefect import State, task

from tokenmill.corpus.units import Unit
from tokenmill.orchestration.unit_tasks import STAGE_TASK, Do, finished, map_units
from tokenmill.pipeline.build import Build
from tokenmill.stages import recipe


@task(name="validate", **STAGE_TASK)
def validate_unit(unit: Unit, do: Do) -> State[Any]:
    """Checks one unit of the token dataset against its documents."""
    return finished("validate", unit, do)


def validate(build: Build) -> None:
    """Checks the token dataset and writes data/report, unless the stage is up to date."""
    build.stage("validate", partial(recipe.validate, run_units=map_units(validate_unit)))
