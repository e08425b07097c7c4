"""Runs the tasks of a flow where run.engine says: in threads of this process, or on the workers of a Dask or Ray cluster."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from prefect.context import FlowRunContext
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

import tokenmill
from tokenmill.console import Advance, say
from tokenmill.errors import ClusterError, ParamsError
from tokenmill.layout import SCRATCH_DIRECTORY
from tokenmill.orchestration.worker_checks import check_slots, check_workers, ray_answers, worker_code
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.task_batches import TaskBatch, tasks_max
from tokenmill.storage.atomic import partial_path

_ANSWER_S_MAX = 10.0
_DEATHS_MAX = 2  # the deaths of workers after which a task is given up
_DASK_GREETING_BYTES_MAX = 1 << 20
_HTTP2_SETTINGS = b"\4"  # RFC 9113: the fourth byte of a frame is its type
_HTTP2_BEGINS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _HTTP2_SETTINGS + bytes(5)  # an empty SETTINGS frame
_SOURCES = ("flows", "tasks")  # a project's own modules, which workers may lack
_RAY_IS_OPEN = (
    "Ray's processes listen on all network interfaces of this machine, and Ray has no setting against it. They answer only who has "
    "the token in ~/.ray/auth_token, unless RAY_AUTH_MODE is disabled. run.engine: threads opens no port to the network"
)
_FAILURES = ("distributed.", "ray.", "dask.")  # modules whose errors come from a cluster


@dataclass(frozen=True)
class TaskEngine:
    """What runs the tasks of a flow. `threads`: the units that one task runs at the same time. `tasks`: the tasks that run at the
    same time."""

    name: str
    threads: int
    tasks: int
    sign: Path | None = None
    """A file that this build made, by which remote workers check that they see the project's folder."""

    _current: ClassVar[ContextVar["TaskEngine"]] = ContextVar("engine")

    @classmethod
    def current(cls) -> "TaskEngine":
        """The engine of the current flow run; one thread outside of `running`."""
        return cls._current.get(TaskEngine("threads", 1, 1))

    @property
    def is_cluster(self) -> bool:
        """Whether tasks run in other processes."""
        return self.name != "threads"

    def n_batches(self, n_units: int) -> int:
        """Number of task runs for these units: enough to keep every slot busy, at most `tasks_max`, otherwise at least one unit per
        thread."""
        return min(tasks_max(self.tasks), max(self.tasks, -(-n_units // self.threads)))

    @contextmanager
    def errors(self, doing: str | None = None) -> Iterator[None]:
        """Turns an error of the cluster itself, such as a lost scheduler, into ClusterError. `doing`: the awaited task."""
        try:
            yield
        except Exception as error:
            if not (self.is_cluster and type(error).__module__.startswith(_FAILURES)):
                raise
            words = f"{' '.join(str(error).split()) or type(error).__name__:.300}"
            task = f"{doing}: " if doing else ""
            raise ClusterError(
                f"run.engine: {self.name}",
                f"{task}the cluster did not end its work: {words}.",
                "Check that its scheduler and workers run, and build again: finished units are kept. If a task ends "
                "its worker each time, as for lack of memory, change run.memory_mb_max or run.workers, or look for "
                "the reason with run.engine: inline.",
            ) from error

    def show(self, futures: Sequence[Any], batches: Sequence[TaskBatch], advance: Advance) -> None:
        """Advances the progress by each task on a cluster when it is done."""
        for future, batch in zip(futures, batches, strict=True):
            future.add_done_callback(lambda _, n_bytes=batch.n_bytes: advance(n_bytes, 0))


@contextmanager
def running(build: Build) -> Iterator[None]:
    """Runs the tasks that the flow starts in the block as run.engine says. Raises ParamsError, ClusterError."""
    run = build.params.run
    context = FlowRunContext.get()
    assert context is not None
    is_elsewhere = run.engine in ("dask", "ray") and run.address is not None
    n_threads = build.workers if is_elsewhere else 1
    sign = partial_path(build.root / SCRATCH_DIRECTORY / "cluster") if is_elsewhere else None
    with ExitStack() as open_until_done:
        runner: Any
        match run.engine:
            case "dask":
                runner, n_slots = open_until_done.enter_context(_dask(run.address, build.workers))
            case "ray":
                runner, n_slots = open_until_done.enter_context(_ray(run.address, build.workers))
            case _:
                runner, n_slots = threads(build.workers), build.workers
        engine = TaskEngine("threads" if run.engine == "inline" else run.engine, n_threads, n_slots, sign)
        with engine.errors(), runner as started, context.model_copy(update={"task_runner": started}):
            token = TaskEngine._current.set(engine)
            if sign is not None:
                sign.touch()
            try:
                yield
            finally:
                TaskEngine._current.reset(token)
                if sign is not None:
                    sign.unlink(missing_ok=True)


def threads(workers: int) -> TaskRunner[Any]:
    """Prefect's thread pool of `workers` threads. By default it would start a thread per task."""
    return cast(TaskRunner[Any], ThreadPoolTaskRunner(max_workers=workers))


@contextmanager
def _dask(address: str | None, workers: int) -> Iterator[tuple[TaskRunner[Any], int]]:
    """Yields Dask's task runner, and the number of tasks that run at the same time. Workers on this machine end with the block."""
    prefect_dask, distributed, dask = (_needed("dask", one) for one in ("prefect_dask", "distributed", "dask"))
    _send_by_value(_needed("dask", "cloudpickle"))
    with ExitStack() as open_until_done:
        scheduler_address = address
        if scheduler_address is None:
            options = {
                "distributed.scheduler.allowed-failures": _DEATHS_MAX - 1,
                "distributed.nanny.pre-spawn-environ.PYTHONSAFEPATH": "1",  # for workers that replace those that died
            }
            # PYTHONSAFEPATH: they import nothing from the working folder.
            with _contact("dask", None), dask.config.set(options), _environment(PYTHONSAFEPATH="1"):
                local = distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address=None,
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # 8787, if it is taken, is a warning
                    memory_limit=0,  # tokenmill keeps to run.memory_mb_max itself; a nanny would kill the worker
                    silence_logs="ERROR",
                )
            scheduler_address = open_until_done.enter_context(local).scheduler_address
        else:
            _check_answers("dask", scheduler_address)
        with (
            _contact("dask", address),
            distributed.Client(scheduler_address, timeout=_ANSWER_S_MAX, set_as_default=False) as client,
        ):
            n_slots = sum(client.nthreads().values())
            check_workers("dask", address, client.run(worker_code, on_error="return"))
        check_slots("dask", address, n_slots)
        yield prefect_dask.DaskTaskRunner(address=scheduler_address), n_slots


@contextmanager
def _ray(address: str | None, workers: int) -> Iterator[tuple[TaskRunner[Any], int]]:
    """Yields Ray's task runner, and the number of tasks that run at the same time. Ray is shut down at the end of the block."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_task_oom_retries", str(_DEATHS_MAX - 1))  # for ever by default
    prefect_ray, ray = _needed("ray", "prefect_ray"), _needed("ray", "ray")
    _send_by_value(_needed("ray", "ray.cloudpickle"))
    options: dict[str, Any] = {"namespace": "prefect", "log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        say(_RAY_IS_OPEN)
        options |= {"num_cpus": workers, "include_dashboard": False, "object_store_memory": 100_000_000}
    else:
        _check_answers("ray", address)
    with ExitStack() as open_until_done:
        open_until_done.enter_context(prefect_ray.context.remote_options(max_retries=_DEATHS_MAX - 1))
        with _contact("ray", address):
            open_until_done.enter_context(_ray_at(ray, address, options))
            n_slots = workers if address is None else int(ray.cluster_resources().get("CPU", 0))
            check_workers("ray", address, ray_answers(ray))
        check_slots("ray", address, n_slots)
        yield prefect_ray.RayTaskRunner(), n_slots  # it uses the cluster that this process is connected to


@contextmanager
def _ray_at(ray: Any, address: str | None, options: dict[str, Any]) -> Iterator[None]:
    # Its own programs need their docstrings, and give warnings.
    with _beside_tokenmill(), _environment(PYTHONOPTIMIZE=None, PYTHONWARNINGS=None):
        try:
            ray.init(address, **options)
        except Exception as error:
            raise RuntimeError(" ".join(str(error).split()).rstrip(".")) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _beside_tokenmill() -> Iterator[None]:
    """Changes to a folder without another tokenmill for the block, because Ray's workers import from the folder in which `ray.init`
    is called, and that may be a clone of tokenmill's repository."""
    package = Path(tokenmill.__file__).parent
    here = Path.cwd() / package.name
    with chdir(package.parent) if here.is_dir() and here.resolve() != package.resolve() else nullcontext():
        yield


@contextmanager
def _environment(**changes: str | None) -> Iterator[None]:
    """Changes variables of the environment for the processes that the block starts; None: unsets one. Afterwards the environment is
    as it was, because a project's own commands inherit it."""
    before = dict(os.environ)
    for name, value in changes.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _needed(engine: str, module: str) -> Any:
    """Imports a module of an optional dependency. Raises ParamsError if it is not installed, or cannot read its settings."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ParamsError(
            "run.engine",
            f"found {engine}, which needs packages that are not installed: {error}.",
            f"Run `pip install 'tokenmill[{engine}]'`.",
            code="TM109",
        ) from None
    except ValueError as error:  # Dask reads its files of settings when it is imported, and names the bad one
        raise ParamsError(f"run.engine: {engine}", f"{' '.join(str(error).split())}.", "Correct the file.") from None


def _send_by_value(cloudpickle: Any) -> None:
    """Makes each task carry the project's flows and tasks, so that workers need only tokenmill."""
    for name in _SOURCES:
        cloudpickle.register_pickle_by_value(import_module(name))


def _check_answers(engine: str, address: str) -> None:
    """Raises ClusterError if nothing or another service listens at the address, where the libraries would wait for minutes. A Dask
    scheduler speaks first over TCP, and Ray answers in HTTP/2; other protocols are not checked."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    with _contact(engine, address):
        if not parts.hostname or not parts.port:
            raise ValueError("it has no host or no port")
        with socket.create_connection((parts.hostname, parts.port), _ANSWER_S_MAX) as connection:
            if engine == "ray" and os.environ.get("RAY_USE_TLS", "0") in ("0", "false"):
                connection.sendall(_HTTP2_BEGINS)
                is_answer = connection.recv(64)[3:4] == _HTTP2_SETTINGS
            elif engine == "dask" and parts.scheme in ("", "tcp"):
                found = connection.recv(64)  # a message begins with its length in bytes
                is_answer = len(found) >= 8 and int.from_bytes(found[:8], "little") < _DASK_GREETING_BYTES_MAX
            else:
                is_answer = True
        if not is_answer:
            raise ValueError("something else listens there")


@contextmanager
def _contact(engine: str, address: str | None) -> Iterator[None]:
    """Turns each library's own errors of a first contact into ClusterError."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:  # the last two over odd settings of Dask
        if address is None:
            raise ClusterError(
                f"run.engine: {engine}",
                f"the workers on this machine did not start: {error}.",
                f"Correct the variables {engine.upper()}_… and its settings files, take a shorter TMPDIR if the path is too long, "
                "raise the limits that `ulimit -a` shows, or set run.engine: threads, which needs none.",
            ) from error
        raise ClusterError(
            "run.address",
            f"no {engine.capitalize()} answers at {address}: {error}.",
            "Start the cluster, correct the address (like "
            f"{('tcp://10.0.0.1:8786' if engine == 'dask' else '10.0.0.1:6379')}), or set it to null, which starts "
            "workers on this machine.",
        ) from None
