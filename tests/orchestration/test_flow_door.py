"""A project's flows and tasks import one module of ours, and those of earlier projects find what they import."""

import ast
from importlib import import_module

import pytest

import tokenmill.flow
from tests.conftest import REPOSITORY

OWN = sorted(path for folder in ("flows", "tasks") for path in (REPOSITORY / folder).glob("*.py"))
EARLIER = {
    "tokenmill.orchestration.flow_runs": ["FLOW", "build_name", "run_build", "run_refresh", "tell_of_failure"],
    "tokenmill.orchestration.prefect_tasks": ["STAGE_TASK", "OneTask", "PrefectTasks", "run_batch"],
    "tokenmill.pipeline.alone": ["alone"],
    "tokenmill.pipeline.build": ["Build"],
    "tokenmill.pipeline.task_batches": ["TaskBatch"],
    "tokenmill.summary": ["StageSummary"],
    "tokenmill.versioning.publish": ["Publication"],
}
"""What the flows and tasks of projects of 0.1 to 0.3 import, by module."""


def test_flows_and_tasks_import_one_module_of_ours() -> None:
    imports = [
        node for path in OWN for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
    ]
    assert {str(node.module) for node in imports if str(node.module).startswith("tokenmill")} == {"tokenmill.flow"}


@pytest.mark.parametrize("module", EARLIER)
def test_what_earlier_projects_import_is_what_the_door_gives(module: str) -> None:
    for name in EARLIER[module]:
        assert getattr(import_module(module), name) is getattr(tokenmill.flow, name)


def test_every_name_of_the_door_leads_somewhere() -> None:
    assert all(getattr(tokenmill.flow, name) is not None for name in tokenmill.flow.__all__)
    assert tokenmill.flow.recipe is import_module("tokenmill.stages.recipe")
    assert tokenmill.flow.publish_steps is import_module("tokenmill.stages.publish")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tokenmill.flow.nothing  # noqa: B018
