"""The refresh of this project, which deployments run on a schedule: new data, a build, drift, the next version."""

from prefect import State, flow

from flows.build import stages
from tokenmill.flow import FLOW, run_refresh, tell_of_failure


@flow(
    name="tokenmill-refresh",
    flow_run_name="refresh",
    on_failure=[tell_of_failure],
    on_crashed=[tell_of_failure],
    **FLOW,
)
def refresh(project: str = ".") -> State[None]:
    """Refreshes the project in the folder `project`. The message of the state says what was done."""
    return run_refresh(stages, project)
