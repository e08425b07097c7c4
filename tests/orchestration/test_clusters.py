"""Builds on real clusters of processes give the bytes of a build in one process, and lose nothing when a part dies."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.builders.prefect_server import Server, end
from tests.builders.rounds import CallTask
from tests.conftest import REPOSITORY, Project
from tests.times import PATIENCE_S
from tokenmill.errors import ClusterError, ParamsError
from tokenmill.orchestration import engines
from tokenmill.pipeline.run_task import TaskRunner, advance_nothing
from tokenmill.pipeline.task_batches import groups_of
from tokenmill.rounds import is_always_acceptable
from tokenmill.stages.count_sums import SumFacts
from tokenmill.storage.unit_store import UnitStore

_WORKER = ("--nthreads", "1", "--no-nanny", "--no-dashboard")


def filled(project: Project) -> Project:
    """With shards of several units, file sets that are packed by an index and shuffled, and a list of what to drop."""
    for name in "cdef":
        project.write(f"{name}.jsonl", [f"{name} {i} " + "low lower lowest " * i for i in range(1, 30)])
    (project.root / "drop.csv").write_text("id,reason\nno such id,asked\n", encoding="utf-8")
    project.set(
        encode__formats=["parquet", "megatron"],
        encode__shuffle={"seed": 1},
        encode__pack={"length": 64, "mode": "best_fit", "long": "cut", "output": "index"},
        encode__splits={"train": 0.8, "validation": 0.2},
        train_vocab__vocab_sizes=[264],
    )
    return project


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_local_workers_give_the_bytes_of_one_process_also_where_the_project_has_another_tokenmill(
    project: Project, server: Server, engine: str
) -> None:
    """A clone of tokenmill's repository is a project, and its core may not be compiled."""
    filled(project).build()
    expected = project.outputs()
    shutil.copytree(REPOSITORY / "tokenmill", project.root / "tokenmill", ignore=shutil.ignore_patterns("*.so"))
    project.set(run__engine=engine, count__partitions=3)
    done = project.build("--force", **server.environment)
    assert project.outputs() == expected
    assert set(project.actions(done).values()) == {"run"}
    assert ("listen on all network interfaces" in done.stderr) == (engine == "ray")


@pytest.mark.slow
def test_conversations_are_encoded_and_checked_by_workers(project: Project, server: Server) -> None:
    for name in "abcd":
        lines = [
            {
                "id": f"{name}{i}",
                "messages": [{"role": "user", "content": f"low {i}"}, {"role": "assistant", "content": "lower"}],
            }
            for i in range(20)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (project.root / f"data/raw/{name}.jsonl").write_text(text, encoding="utf-8")
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    project.set(
        source__messages_column="messages",
        train_vocab__vocab_size=280,
        train_vocab__special_tokens=specials,
        encode__chat={"template": "chatml"},
        encode__end_of_document=None,
    )
    project.build()
    expected = project.outputs()
    project.set(run__engine="dask")
    project.build("--force", **server.environment)
    assert project.outputs() == expected


@pytest.mark.slow
def test_a_failing_unit_on_a_cluster_is_told_as_in_one_process(project: Project, server: Server) -> None:
    project.write("bad.jsonl", ["good"])
    with (project.root / "data/raw/bad.jsonl").open("a", encoding="utf-8") as file:
        file.write("no json\n")
    expected = project.cli("build").stderr.splitlines()[-1]
    project.set(run__engine="dask")
    done = project.run("tokenmill", "build", **server.environment)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == expected


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_task_that_ends_its_worker_twice_ends_the_build_with_its_words(
    project: Project, server: Server, engine: str
) -> None:
    path = project.root / "tasks/count.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("    return run_batch(", "    __import__('os')._exit(9)\n    return run_batch("))
    (project.root / "data/raw/b.jsonl").unlink()
    project.set(run__engine=engine)
    done = project.run("tokenmill", "build", **server.environment)
    assert done.returncode == 2, done.stderr
    assert f"error[TM705]: run.engine: {engine}: count data/raw/a.jsonl: the cluster did not end" in done.stderr
    assert "died" in done.stderr
    assert "finished units are kept" in done.stderr


@dataclass
class Cluster:
    """A Dask cluster of processes."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]
    begin: Callable[..., subprocess.Popen[bytes]]

    def restart(self) -> None:
        """Kills the scheduler, and starts another one at once at its address, with workers of its own."""
        self.scheduler.kill()
        self.scheduler.wait()
        self.scheduler = self.begin("scheduler", "--port", self.address.rpartition(":")[2], "--no-dashboard")
        self.workers = [self.begin("worker", *_WORKER, "--name", f"again{i}") for i in range(len(self.workers))]


@contextmanager
def cluster(folder: Path, n_workers: int, code: Path = REPOSITORY) -> Iterator[Cluster]:
    """A scheduler and workers that do not know the project, in a folder elsewhere. They are ended with the block. `code`: the
    folder that they have tokenmill from."""
    folder.mkdir()
    file = folder / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": str(code)}
    started: list[subprocess.Popen[bytes]] = []

    def begin(kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", kind, "--scheduler-file", str(file), "--host", "127.0.0.1", *arguments]
        with (folder / f"{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        started.append(process)
        return process

    try:
        scheduler = begin("scheduler", "--port", "0", "--no-dashboard")
        deadline = time.monotonic() + PATIENCE_S
        while not file.exists() or not file.read_text(encoding="utf-8").endswith("}"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        workers = [begin("worker", *_WORKER, "--name", f"w{i}") for i in range(n_workers)]
        address = str(json.loads(file.read_text(encoding="utf-8"))["address"])
        from distributed import Client

        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(n_workers, timeout=PATIENCE_S)
        yield Cluster(address, scheduler, workers, begin)
    finally:
        for process in reversed(started):
            end(process)


def stored(project: Project) -> dict[Path, tuple[int, int]]:
    """The files of the finished units, with inode and time of their last change."""
    files = (project.root / ".tokenmill/units").glob("??/*/*.parquet")
    return {path: (status.st_ino, status.st_mtime_ns) for path in files for status in [path.stat()]}


@contextmanager
def building(project: Project, server: Server, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """A build on that cluster that has finished some of its units and works on the others."""
    words = " ".join(f"w{i}" for i in range(25_000))
    for i in range(12):
        project.write(f"c{i}.jsonl", [f"{i} {words}"] * 6)
    project.set(run__engine="dask", run__address=address, run__workers=None)
    environment = {**os.environ, **server.environment, "PYTHONPATH": str(REPOSITORY)}
    command = [str(Path(sys.executable).parent / "tokenmill"), "build"]
    with (project.root / "said").open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=project.root, env=environment, stderr=file, start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(stored(project)) < 3:
            assert time.monotonic() < deadline
            assert process.poll() is None, (project.root / "said").read_text(encoding="utf-8")
            time.sleep(0.02)
        yield process
    finally:
        end(process)


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_no_finished_unit_and_changes_no_byte(
    project: Project, server: Server, tmp_path: Path
) -> None:
    with cluster(tmp_path / "cluster", 3) as found:
        with building(project, server, found.address) as process:
            before = stored(project)
            found.workers[0].kill()
            assert process.wait(PATIENCE_S) == 0, (project.root / "said").read_text(encoding="utf-8")
        after = stored(project)
        assert {path: after[path] for path in before} == before
        from distributed import Client

        with Client(found.address, set_as_default=False) as client:
            loaded = client.run(lambda: {"dvc", "prefect", "tokenmill"} & set(sys.modules))
        assert all(one == {"prefect", "tokenmill"} for one in loaded.values()), loaded
    made = project.outputs()
    project.set(run__engine="inline", run__address=None, run__workers=2)
    project.build("--force")
    assert project.outputs() == made


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
def test_a_lost_scheduler_is_one_error_and_the_next_build_goes_on(
    restarts: bool, project: Project, server: Server, tmp_path: Path
) -> None:
    with cluster(tmp_path / "cluster", 2) as found, building(project, server, found.address) as process:
        before = stored(project)
        if restarts:
            found.restart()
        else:
            found.scheduler.kill()
        assert process.wait(PATIENCE_S) == 2
        if restarts:
            from distributed import Client

            with Client(found.address, set_as_default=False) as client:
                client.wait_for_workers(2, timeout=PATIENCE_S)
                names = {worker["name"] for worker in client.scheduler_info()["workers"].values()}
            assert names >= {"again0", "again1"}
    said = (project.root / "said").read_text(encoding="utf-8")
    assert "TM705" in said
    assert "finished units are kept" in said
    assert "Traceback" not in said
    project.set(run__engine="inline", run__address=None)
    project.build()
    after = stored(project)
    assert {path: after[path] for path in before} == before


@pytest.mark.slow
def test_an_address_where_nothing_answers_is_one_error(project: Project, server: Server) -> None:
    project.set(run__engine="dask", run__address="tcp://127.0.0.1:1")
    done = project.run("tokenmill", "build", **server.environment)
    assert done.returncode == 2
    assert "run.address: no Dask answers at tcp://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["changed", "not whole"])
def test_workers_with_another_tokenmill_are_one_error_before_any_work(
    kind: str, project: Project, server: Server, tmp_path: Path
) -> None:
    code = tmp_path / "code/tokenmill"
    if kind == "changed":
        for name in ("tokenmill", "tokenmill_reader"):
            shutil.copytree(REPOSITORY / name, code.parent / name)
        (code / "counts/table.py").write_text((code / "counts/table.py").read_text() + "\nCHANGED = 1\n")
        why = "another tokenmill, which would make other bytes"
    else:
        code.mkdir(parents=True)
        (code / "__init__.py").touch()
        why = "none, or not all that it needs: ModuleNotFoundError"
    with cluster(tmp_path / "cluster", 2, code.parent) as running:
        project.set(run__engine="dask", run__address=running.address, run__workers=None)
        done = project.run("tokenmill", "build", **server.environment)
    assert done.returncode == 2
    assert f"run.address: 2 of 2 workers at {running.address} cannot do this build." in done.stderr
    assert why in done.stderr
    assert "count: started" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("says", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["nothing", "closes", "HTTP/1"])
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_something_else_at_the_address_is_one_error(
    engine: str, says: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_ANSWER_S_MAX", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                if says is None:
                    connection.recv(1 << 16)
                    time.sleep(1)
                else:
                    connection.sendall(says)

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(answer)
            with pytest.raises(ClusterError, match=f"run.address: no {engine.capitalize()} answers at 127.0.0.1"):
                engines._check_answers(engine, f"127.0.0.1:{listener.getsockname()[1]}")
            done.result()


@pytest.mark.slow
def test_a_build_of_many_units_has_few_task_runs(project: Project, server: Server) -> None:
    for i in range(300):
        project.write(f"many/{i:03}.jsonl", [f"low {i}"])
    project.set(run__engine="threads", run__workers=2)
    project.build(**server.environment)
    run = {"flow_runs": {"id": {"any_": [server.flow_run(f"build {project.root.name}")["id"]]}}}
    n, n_before = 0, -1
    while n != n_before or not n:  # they are recorded later
        time.sleep(2)
        n, n_before = server.post("task_runs/count", run), n
    assert 3 * 16 <= n < 3 * 16 + 40  # beside the units, sums of counts and one training


def test_batches_have_all_units_in_order_and_about_the_same_size() -> None:
    tasks = [CallTask(name=str(i), key=str(i)) for i in range(1000)]
    groups = groups_of(tasks, 7)
    assert [task for group in groups for task in group] == tasks
    assert {len(group) for group in groups} <= {142, 143}
    assert [[task.name for task in group] for group in groups_of(tasks[:3], 7)] == [["0"], ["1"], ["2"]]
    assert groups_of([], 7) == []


def test_each_task_has_units_for_all_of_its_threads_but_no_worker_is_left_without_a_task() -> None:
    engine = engines.TaskEngine("dask", threads=16, tasks=64)
    assert [engine.n_batches(n) for n in (40, 200, 2000, 100_000)] == [64, 64, 125, 256]
    assert engines.TaskEngine("threads", threads=1, tasks=2).n_batches(100_000) == 16
    assert engines.TaskEngine("dask", threads=1, tasks=1024).n_batches(100_000) == 1024


def test_an_address_goes_with_a_cluster(project: Project) -> None:
    project.set(run__address="tcp://127.0.0.1:8786")
    done = project.cli("build")
    assert done.returncode == 2
    assert "run.address: found 'tcp://127.0.0.1:8786'; allowed: null with engine: inline" in done.stderr


def test_an_engine_whose_packages_are_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prefect_dask", None)
    with pytest.raises(ParamsError, match=r"pip install 'tokenmill\[dask\]'"):
        engines._needed("dask", "prefect_dask")


def runner_of(project: Project) -> TaskRunner[SumFacts]:
    runner = TaskRunner(
        "count",
        SumFacts,
        is_always_acceptable,
        project.root,
        UnitStore(project.root),
        False,
        None,
        advance_nothing,
    )
    return runner.for_worker(1, None)


def test_a_worker_refuses_another_tokenmill_and_a_folder_that_it_does_not_see(project: Project, tmp_path: Path) -> None:
    tasks, runner = [CallTask(name="a", key="ab" * 32)], runner_of(project)
    [done] = runner.outcomes(tasks)
    assert not isinstance(done, Exception)
    assert runner.remote is not None
    with pytest.raises(ClusterError, match="has another tokenmill than the build"):
        msgspec.structs.replace(runner, remote=runner.remote._replace(code="other")).outcomes(tasks)
    with pytest.raises(ClusterError, match="does not see this project"):
        msgspec.structs.replace(runner, root=tmp_path / "elsewhere").outcomes(tasks)


def test_a_unit_that_another_worker_has_finished_is_not_done_again(project: Project) -> None:
    runner = runner_of(project)
    runner.outcomes([CallTask(name="a", key="ab" * 32)])

    def never(_task: object) -> None:
        raise AssertionError

    [done] = runner.outcomes([CallTask(name="a", key="ab" * 32, call=never)])
    assert not isinstance(done, Exception)
