"""What a build shows on a standing Prefect server, and that it ends when it is cancelled there."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.builders.import_lock import HOLDS_THE_IMPORT_LOCK
from tests.builders.prefect_server import Server, prefect_home, standing_server
from tests.builders.processes import building, said
from tests.conftest import REPOSITORY, Project
from tests.times import PATIENCE_S

pytestmark = pytest.mark.slow

# By default a build waits 10 s for an answer and tries three times more. The tests do not wait that long.
IMPATIENT = {"PREFECT_API_REQUEST_TIMEOUT": "2", "PREFECT_CLIENT_MAX_RETRIES": "1"}


def test_the_server_shows_names_states_progress_and_logs(project: Project, server: Server) -> None:
    project.set(run__engine="threads", source__on_bad_document="quarantine", source__bad_documents_max=1)
    with (project.root / "data/raw/b.jsonl").open("a", encoding="utf-8") as file:
        file.write("no JSON\n")
    name = f"build {project.root.name}"
    project.build(**server.environment)
    run = server.flow_run(name)
    states = server.task_states(run)
    units = [f"{stage} data/raw/{shard}.jsonl" for stage in ("count", "encode", "validate") for shard in "ab"]
    assert {unit: state for unit, (state, _) in states.items()} == {
        unit: "Quarantined" if "b.jsonl" in unit else "Completed" for unit in (*units, "train-vocab 272 tokens")
    }
    assert states["train-vocab 272 tokens"][1].startswith("train-vocab 272 tokens: 15 merges, ")
    words = "encode data/raw/b.jsonl: 3 documents, 82 bytes of text, "
    assert states["encode data/raw/b.jsonl"][1].startswith(words)
    assert ", 1 left out, " in states["encode data/raw/b.jsonl"][1]
    assert words in server.logs(run)
    shown = server.artifacts(run)
    assert [shown[f"tokenmill-{stage}"] for stage in ("count", "train-vocab", "encode", "validate")] == [100.0] * 4
    assert '"stage": "encode", "units": "2", "documents": "6"' in shown["tokenmill-build"]

    project.set(validate__sample_documents=1, run__report_page=True)
    project.build(**server.environment)
    states = server.task_states(server.flow_run(name))
    assert {unit: state for unit, (state, _) in states.items()} == {
        "validate data/raw/a.jsonl": "Completed",
        "validate data/raw/b.jsonl": "Quarantined",
    }
    assert '"stage": "count"' in (table := server.artifacts(server.flow_run(name))["tokenmill-build"])
    assert '"what": "up to date"' in table
    page = (project.root / "data/report/report.html").resolve().as_uri()
    assert page in server.artifacts(server.flow_run(name))["tokenmill-report"]

    project.write("c.jsonl", ["the new cat"])
    project.write_bad_end("d.jsonl")
    project.set(source__on_bad_document="fail", source__glob="data/raw/[acd].jsonl")
    done = project.run("tokenmill", "build", **server.environment)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.startswith("Prefect")] == [
        f"Prefect at {server.url.removesuffix('/api')}: the build appears there in some seconds"
    ]
    assert sum(line.startswith("count: started, ") for line in lines) == 1
    assert sum("b.jsonl" in line for line in lines) == 1, "which the glob leaves out"
    assert lines[-1].startswith("tokenmill: error[TM209]: data/raw/d.jsonl")
    run = server.flow_run(name)
    assert run["state"]["type"] == "FAILED"
    states = server.task_states(run)
    assert {unit: state for unit, (state, _) in states.items()} == {
        "count data/raw/c.jsonl": "Completed",
        "count data/raw/d.jsonl": "Failed",
    }
    assert "data/raw/d.jsonl" in states["count data/raw/d.jsonl"][1]


def test_a_build_that_is_cancelled_on_the_server_ends_and_the_next_goes_on(project: Project, server: Server) -> None:
    with building(project, server.environment, n_documents=24) as process:
        server.cancel(server.flow_run(f"build {project.root.name}"))
        assert process.wait(timeout=PATIENCE_S) == 143
    assert "cancelled on Prefect's server" in said(project)
    assert "Traceback" not in said(project)
    assert server.flow_run(f"build {project.root.name}")["state"]["type"] == "CANCELLED"
    assert "data/report/report.json" not in project.outputs()
    for name in "cdefgh":
        (project.root / f"data/raw/{name}.jsonl").unlink()
    project.set(run__engine="inline")
    project.build()


def test_a_server_that_goes_away_stops_no_build(project: Project, tmp_path: Path, prefect_database: Path) -> None:
    home = prefect_home(tmp_path / "home", prefect_database)
    with ExitStack() as standing:
        server = standing.enter_context(standing_server(home))
        with building(project, server.environment | IMPATIENT, n_documents=3) as process:
            standing.close()  # ends the server
            assert process.wait(timeout=PATIENCE_S) == 0, said(project)
    words = said(project)
    assert "Traceback" not in words
    assert "it may not show how this build ended" in words
    assert project.run("tokenmill", "status").returncode == 0


def processes_of(server: Server) -> list[psutil.Process]:
    """Those that know its home: before a build begins, those of the server."""
    found = psutil.process_iter(["environ"])
    return [one for one in found if (one.info["environ"] or {}).get("PREFECT_HOME") == str(server.home)]


@contextmanager
def hanging(processes: list[psutil.Process]) -> Iterator[None]:
    """Processes stand still while the block runs: a server's take connections, and never answer."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


@pytest.mark.parametrize(("number", "code"), [(None, 0), (signal.SIGINT, 130)])
def test_a_server_that_hangs_stops_no_build(
    project: Project, server: Server, number: signal.Signals | None, code: int
) -> None:
    processes = processes_of(server)
    with building(project, server.environment | IMPATIENT, n_documents=2) as process, hanging(processes):
        if number:
            process.send_signal(number)
        assert process.wait(timeout=PATIENCE_S) == code, said(project)
    words = said(project)
    assert "Traceback" not in words
    assert "it may not show how this build ended" in words
    if number is None:
        assert project.run("tokenmill", "status").returncode == 0
    else:
        assert "Run `tokenmill build` to go on" in words


def test_a_build_that_is_cancelled_on_a_server_that_then_hangs_ends(project: Project, server: Server) -> None:
    processes = processes_of(server)
    with building(project, server.environment | IMPATIENT) as process, ExitStack() as standing_still:
        server.cancel(server.flow_run(f"build {project.root.name}"))
        deadline = time.monotonic() + PATIENCE_S
        while "cancelled on Prefect's server" not in said(project):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        standing_still.enter_context(hanging(processes))
        assert process.wait(timeout=PATIENCE_S) == 143, said(project)
    words = said(project)
    assert "Traceback" not in words
    assert "before the build began" not in words
    assert "Run `tokenmill build` to go on" in words


LAST_MOMENT = """
import os, sys, time
import httpx
from tokenmill.__main__ import program
from tokenmill.orchestration.settings import quiet_environment
quiet_environment()
from tokenmill.orchestration.server import Server
kept = Server.keep
def keep(server, outcome):
    from prefect.runtime import flow_run
    kept(server, outcome)
    path = f"{os.environ['PREFECT_API_URL']}/flow_runs/{flow_run.id}"
    while (answer := httpx.ACT).status_code == 503:  # its database is locked
        time.sleep(0.2)
    print("asked:", answer.json()["status"] if answer.content else "deleted", file=sys.stderr)
Server.keep = keep
sys.argv = ["tokenmill", "build"]
sys.exit(program())
"""
CANCEL = 'post(f"{path}/set_state", json={"state": {"type": "CANCELLING"}})'


@pytest.mark.parametrize(("is_right", "code", "state"), [(True, 0, "COMPLETED"), (False, 2, "CANCELLED")])
def test_a_run_that_is_cancelled_when_its_work_is_done_ends_on_the_server(
    project: Project, server: Server, is_right: bool, code: int, state: str
) -> None:
    project.set(run__engine="threads")
    if not is_right:
        project.write_bad_end("d.jsonl")
    done = project.run(sys.executable, "-c", LAST_MOMENT.replace("ACT", CANCEL), **server.environment)
    assert done.returncode == code, done.stderr
    assert "asked: ACCEPT" in done.stderr
    assert "Traceback" not in done.stderr
    assert server.flow_run(f"build {project.root.name}")["state"]["type"] == state


def test_a_flow_run_that_was_deleted_stops_no_build(project: Project, tmp_path: Path, prefect_database: Path) -> None:
    def at_the_end() -> str:
        done = project.run(sys.executable, "-c", LAST_MOMENT.replace("ACT", "delete(path)"), **server.environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def at_work() -> str:
        with building(project, server.environment, n_documents=3) as process:
            with hanging([psutil.Process(process.pid)]):  # or it may be done before the server has deleted
                server.delete(server.flow_run(f"build {project.root.name}"))
            assert process.wait(timeout=PATIENCE_S) == 0, said(project)
        return said(project)

    project.set(run__engine="threads")
    home = prefect_home(tmp_path / "home", prefect_database)
    with standing_server(home) as server:  # of its own: while it deletes, it may answer nobody for half a minute
        for deleted in (at_the_end, at_work):
            words = deleted()
            assert words.count("may not show how this build ended") == 1
            assert "Traceback" not in words


def test_the_end_of_the_terminal_is_not_heeded_where_it_is_ignored(project: Project) -> None:
    script = """
import os, signal
from tokenmill.cli import main as cli
signal.signal(signal.SIGHUP, signal.SIG_IGN)
cli.project.add_commands = lambda _: os.kill(os.getpid(), signal.SIGHUP)
exit(cli.main(["build"]))
"""
    done = project.run(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert "terminated" not in done.stderr
    done = project.run(sys.executable, "-c", script.replace("SIG_IGN", "SIG_DFL"))
    assert done.returncode == 143
    assert "terminated. Run `tokenmill build` to go on" in done.stderr


def test_a_command_whose_terminal_ended_ends_with_its_code(project: Project) -> None:
    script = """
import fcntl, termios, time
from tokenmill.cli import main as cli
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
def wait(_):
    print("ready", flush=True)
    for _ in range(600):  # a signal just before a long sleep would be heard at its end
        time.sleep(0.1)
cli.project.add_commands = wait
exit(cli.main(["build"]))
"""
    ours, its = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=project.root,
        env=environment,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    ) as process:
        os.close(its)
        words = b""
        while b"ready" not in words:
            words += os.read(ours, 1000)
        os.close(ours)
        assert process.wait(timeout=PATIENCE_S) == 143


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_ends_the_build_with_its_code(project: Project, server: Server, number: int, code: int) -> None:
    with building(project, server.environment) as process:
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE_S) == code
    words = said(project)
    assert "Traceback" not in words
    assert "Run `tokenmill build` to go on" in words
    assert project.outputs() == {}
    state = server.flow_run(f"build {project.root.name}")["state"]
    assert state["type"] == "CRASHED"
    assert ("Terminated: asked to end; what is finished is kept" in state["message"]) == (number == signal.SIGHUP)


def test_a_signal_during_the_wait_for_the_import_lock_leaves_it_free(server: Server) -> None:
    code = """
from tokenmill.orchestration.settings import quiet_environment
quiet_environment()
from prefect import flow
from prefect.utilities import engine
from tokenmill.orchestration.watch import watched
@flow(persist_result=False)
def work():
    with watched():
        assert engine.is_prefect_sigterm_handler_installed()  # else Prefect's runner would not trust the process to end
        import_meanwhile()
work()
"""
    environment = {**os.environ, **server.environment, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", HOLDS_THE_IMPORT_LOCK.replace("NUMBER", "SIGTERM") + code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "free\n"), done.stderr


BEFORE_THE_WORK = """
import os, time
import httpx
from tokenmill.orchestration.settings import quiet_environment
quiet_environment()
from prefect import flow
from prefect.runtime import flow_run
from tokenmill.errors import Terminated
from tokenmill.orchestration.server import Server
from tokenmill.orchestration.watch import end_what_was_cancelled
send, failures = httpx.Client.send, FAILURES
def failing(self, request, *arguments, **named):
    if b'"CANCELLED"' in request.read() and failures:
        return httpx.Response(failures.pop(), request=request)
    return send(self, request, *arguments, **named)
httpx.Client.send = failing
def cancelled():
    url = f"{os.environ['PREFECT_API_URL']}/flow_runs/{flow_run.id}/set_state"
    while httpx.post(url, json={"state": {"type": "CANCELLING"}}).status_code == 503:
        time.sleep(0.2)
    return "cancelled NAME"
@flow(flow_run_name=cancelled, persist_result=False, on_cancellation=[end_what_was_cancelled])
def work():
    print("work")
try:
    with Server().serving():
        work()
except Terminated:
    print("terminated")
"""


@pytest.mark.parametrize(
    ("failures", "state"),
    [([], "CANCELLED"), ([503, 503], "CANCELLED"), ([409], "CANCELLING"), ([503] * 99, "CANCELLING")],
)
def test_a_run_that_is_cancelled_before_its_work_begins_ends_on_the_server(
    server: Server, failures: list[int], state: str
) -> None:
    name = f"{len(failures)} {failures[:1]}"
    code = BEFORE_THE_WORK.replace("FAILURES", str(failures)).replace("NAME", name)
    tries = {"PREFECT_CLIENT_MAX_RETRIES": "2"}
    environment = {**os.environ, **server.environment, **tries, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "terminated\n", done.stderr
    assert server.flow_run(f"cancelled {name}")["state"]["type"] == state
