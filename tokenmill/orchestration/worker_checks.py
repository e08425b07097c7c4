"""Asks the workers of a cluster, before any work, whether they have the tokenmill of the build."""

from collections.abc import Mapping
from typing import Any

from tokenmill.console import say
from tokenmill.errors import ClusterError
from tokenmill.pipeline.code_digest import units_digest
from tokenmill.quantities import number_of

_FIRST_WORK_S_MAX = 60.0


def ray_answers(ray: Any) -> dict[str, Any]:
    """The answer of a worker on each node, by the node's address."""
    waiting = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU"):
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(worker_code)
            waiting[f"{node['NodeManagerAddress']} (node {node['NodeID'][:8]})"] = remote.remote()
    answers: dict[str, Any] = {}
    for name, answer in waiting.items():
        try:
            answers[name] = ray.get(answer, timeout=_FIRST_WORK_S_MAX)
        except Exception as error:  # noqa: BLE001 — of many kinds, each a reason why this worker cannot work
            answers[name] = error
    return answers


def worker_code() -> str:
    """Runs on each worker first, and gives the digest of its tokenmill. Fails on a worker without tokenmill or its dependencies."""
    import prefect  # noqa: F401 — a task needs it

    return units_digest()


def check_workers(engine: str, address: str | None, answers: Mapping[str, Any]) -> None:
    """Raises ClusterError if a worker has another tokenmill than the build, or none. Without this check, a cluster waits silently
    for workers that crashed on their first task."""
    wrong = {name: answer for name, answer in answers.items() if answer != worker_code()}
    if wrong:
        name, answer = next(iter(wrong.items()))
        why = "another tokenmill, which would make other bytes"
        if isinstance(answer, OSError):
            why = f"not answered: {' '.join(str(answer).split()):.200}"
        elif isinstance(answer, Exception):
            why = f"none, or not all that it needs: {' '.join(str(answer).split()):.200}"
        where, what = "run.engine", "on this machine"
        fix = "See that neither PYTHONPATH nor the project's folder has another tokenmill, or modules of the names that it imports."
        if address is not None:
            where, what = "run.address", f"at {address}"
            fix = f"Install the same packages on each worker as here, with tokenmill[{engine}], start them again, and build."
        raise ClusterError(
            where,
            f"{len(wrong):,} of {len(answers):,} workers {what} cannot do this build. The first, {name}, has {why}.",
            fix,
        )


def check_slots(engine: str, address: str | None, n_slots: int) -> None:
    if not n_slots:
        raise ClusterError("run.address", f"the cluster at {address} has no worker.", "Start workers, and build again.")
    if address is not None:
        say(f"{engine} at {address}: {number_of(n_slots, 'task')} at the same time")
