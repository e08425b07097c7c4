"""validate: token dataset → report, tasks for batches of work units."""

from functools import partial
from typing import Any

from prefect import State, task

from tokenmill.orchestration.unit_tasks import STAGE_TASK, Do, finished, map_units
from tokenmill.pipeline.batches import Batch
from tokenmill.pipeline.build import Build
from tokenmill.stages import recipe


@task(name="validate", **STAGE_TASK)
def validate_units(batch: Batch, do: Do) -> State[Any]:
    """Checks a batch of units of the token dataset against their documents."""
    return finished("validate", batch, do)


def validate(build: Build) -> None:
    """Checks the token dataset and writes data/report, unless the stage is up to date."""
    build.stage("validate", partial(recipe.validate, run_units=map_units(validate_units)))
