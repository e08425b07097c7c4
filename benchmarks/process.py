"""Measurements of this process, and in processes of their own. A tool's process imports this first, so it imports little."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent


class Run(NamedTuple):
    """The seconds of one run, those of the processor, and what the run returned."""

    seconds: float
    cpu_s: float
    result: Any = None


def timed(work: Callable[[], Any]) -> Run:
    """Runs `work`; the processor time is that of all threads, and of processes that began and ended meanwhile."""
    start_s, start_cpu_s = time.perf_counter(), time.process_time() + _children_cpu_s()
    result = work()
    return Run(time.perf_counter() - start_s, time.process_time() + _children_cpu_s() - start_cpu_s, result)


def timed_command(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Run:
    """Runs a command, which must end well; the processor time is that of its processes."""
    start_s, start_cpu_s = time.perf_counter(), _children_cpu_s()
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    return Run(time.perf_counter() - start_s, _children_cpu_s() - start_cpu_s)


def run_module(
    module: str,
    *arguments: object,
    python: Path | str = sys.executable,
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
    seconds_max: float | None = None,
    tells_progress: bool = False,
) -> dict[str, Any]:
    """The JSON in the last line that a module prints, or `failed`: why it failed. `environment`: variables beside those of this
    process. With `tells_progress` its standard error is that of this process, which a user sees."""
    command = [str(python), "-m", module, *map(str, arguments)]
    variables = {**os.environ, **(environment or {})}
    errors = None if tells_progress else subprocess.PIPE
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": errors, "text": True, "timeout": seconds_max}
    try:
        done = subprocess.run(command, cwd=folder, env=variables, check=False, **how)
    except subprocess.TimeoutExpired:
        return {"failed": f"it took more than {seconds_max} s"}
    if done.returncode:
        last = ((done.stderr or "").strip().splitlines() or ["no message"])[-1]
        return {"failed": f"exit {done.returncode}: {last[:200]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # some tools print what they do
    return found


def module_result(module: str, *arguments: object, **how: Any) -> dict[str, Any]:
    """The same for a module that must end well; SystemExit says why it did not."""
    result = run_module(module, *arguments, **how)
    if "failed" in result:
        raise SystemExit(f"{module}: {result['failed']}")
    return result


def bind(cores: int) -> None:
    """Gives this process so many cores, before any tool is imported, and tells the tools so."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    os.environ |= {"RAYON_NUM_THREADS": str(cores), "TOKENIZERS_PARALLELISM": "true" if cores > 1 else "false"}


def peak_mb() -> float:
    """The process's own peak: what getrusage says begins with that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024 / 1e6


def _children_cpu_s() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
