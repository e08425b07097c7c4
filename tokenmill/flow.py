"""What the flows and tasks of a project import. The modules that have these names, too, stay where they are until 1.0."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tokenmill.features import PARTS, load

if TYPE_CHECKING:
    from tokenmill.features.refresh.flow import run_refresh, tell_of_failure
    from tokenmill.orchestration.flow_runs import FLOW, build_name, run_build
    from tokenmill.orchestration.prefect_tasks import STAGE_TASK, OneTask, PrefectTasks, run_batch
    from tokenmill.pipeline.alone import alone
    from tokenmill.pipeline.build import Build
    from tokenmill.pipeline.task_batches import TaskBatch
    from tokenmill.stages import publish as publish_steps
    from tokenmill.stages import recipe
    from tokenmill.summary import StageSummary
    from tokenmill.versioning.publish import Publication

__all__ = [
    "FLOW",
    "STAGE_TASK",
    "Build",
    "OneTask",
    "PrefectTasks",
    "Publication",
    "StageSummary",
    "TaskBatch",
    "alone",
    "build_name",
    "publish_steps",
    "recipe",
    "run_batch",
    "run_build",
    "run_refresh",
    "tell_of_failure",
]

_HOMES = {
    "FLOW": "tokenmill.orchestration.flow_runs",
    "STAGE_TASK": "tokenmill.orchestration.prefect_tasks",
    "Build": "tokenmill.pipeline.build",
    "OneTask": "tokenmill.orchestration.prefect_tasks",
    "PrefectTasks": "tokenmill.orchestration.prefect_tasks",
    "Publication": "tokenmill.versioning.publish",
    "StageSummary": "tokenmill.summary",
    "TaskBatch": "tokenmill.pipeline.task_batches",
    "alone": "tokenmill.pipeline.alone",
    "build_name": "tokenmill.orchestration.flow_runs",
    "run_batch": "tokenmill.orchestration.prefect_tasks",
    "run_build": "tokenmill.orchestration.flow_runs",
}
_MODULES = {"publish_steps": "tokenmill.stages.publish", "recipe": "tokenmill.stages.recipe"}


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used: a worker, which imports the tasks, needs half of what is behind these names."""
    if name in _MODULES:
        value = import_module(_MODULES[name])
    elif name in PARTS["imported"]:
        value = load(PARTS["imported"][name])
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'tokenmill.flow' has no attribute {name!r}")
    globals()[name] = value
    return value
