"""The build as a real Prefect flow, with the embedded server, in a Prefect home of the test's own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.builders.prefect_server import Server, end, prefect_home, recorded_runs
from tests.builders.processes import STDERR, building, said
from tests.conftest import REPOSITORY, Project
from tests.times import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, prefect_database: Path) -> dict[str, str]:
    """Environment of a Prefect that knows no server."""
    return {"PREFECT_HOME": str(prefect_home(tmp_path_factory.mktemp("prefect") / "home", prefect_database))}


def servers(home: dict[str, str]) -> set[int]:
    return {
        process.pid
        for process in psutil.process_iter(["cmdline", "environ"])
        if "tokenmill.orchestration.embedded" in " ".join(process.info["cmdline"] or [])
        and (process.info["environ"] or {}).get("PREFECT_HOME") == home["PREFECT_HOME"]
    }


def test_an_inline_build_and_one_with_nothing_to_do_do_not_import_prefect(project: Project) -> None:
    """Nor pandas, which pyarrow imports where it is installed, at the first array that it makes."""

    def imported(command: str) -> set[str]:
        script = f"import sys; from tokenmill.cli.main import main; main(['{command}']); print(*sys.modules, file=sys.stderr)"
        done = project.run(sys.executable, "-c", script)
        assert done.returncode == 0, done.stderr
        return {"prefect", "pandas"} & set(done.stderr.split())

    assert imported("build") == {"pandas"}
    project.set(run__engine="threads")
    assert imported("build") == imported("status") == set()
    for path in (project.root / "data/raw").glob("*.jsonl"):
        path.touch()
    assert imported("build") == set()


def test_a_server_starts_before_dvc_looks_at_the_files_if_a_file_of_documents_is_new(project: Project) -> None:
    project.build()
    project.set(run__engine="threads")
    script = """
import sys
from tokenmill.orchestration import session
from tokenmill.pipeline.build import Build
Build.settle_first = lambda build: sys.exit(3 if "prefect" in sys.modules else 4)
session.start_server = lambda root, build: __import__("prefect")
from tokenmill.cli.main import main
main(["build"])
"""
    assert project.run(sys.executable, "-c", script).returncode == 4
    project.write("new.jsonl", ["x"])
    assert project.run(sys.executable, "-c", script).returncode == 3


@pytest.mark.slow
def test_a_build_from_a_running_event_loop_awaits_all_of_prefect(project: Project, server: Server) -> None:
    """As in a notebook, whose cells run in an event loop."""
    project.set(run__engine="threads")
    script = (
        "import asyncio; from tokenmill.cli.main import main\n"
        "async def cell(): assert main(['build']) == 0\n"
        "asyncio.run(cell())"
    )
    done = project.run(sys.executable, "-c", script, **server.environment)
    assert done.returncode == 0, done.stderr
    assert "never awaited" not in done.stderr


def test_ctrl_c_in_a_terminal_is_told_to_the_embedded_server_and_leaves_nothing_behind(
    project: Project, home: dict[str, str]
) -> None:
    before = servers(home)
    with building(project, home) as process:
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 130
    words = said(project)
    assert "Traceback" not in words
    assert "Run `tokenmill build` to go on" in words
    assert project.outputs() == {}
    assert servers(home) == before
    assert (f"build {project.root.name}", "CRASHED") in recorded_runs(home, "flow_run")


def test_a_server_that_is_killed_stops_no_build(project: Project, home: dict[str, str]) -> None:
    before = servers(home)
    with building(project, home, n_documents=3) as process:
        for pid in servers(home) - before:
            os.kill(pid, signal.SIGKILL)
        assert process.wait(timeout=PATIENCE_S) == 0, said(project)
    assert "it may not show how this build ended" in said(project)
    assert project.run("tokenmill", "status").returncode == 0


def test_ctrl_c_is_heeded_when_the_server_is_gone(project: Project, home: dict[str, str]) -> None:
    before = servers(home)
    with building(project, home) as process:
        for pid in servers(home) - before:
            os.kill(pid, signal.SIGKILL)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 130, said(project)
    assert "Traceback" not in said(project)


def test_a_server_that_cannot_start_is_told_with_the_reason(project: Project, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file", encoding="utf-8")
    project.set(run__engine="threads")
    done = project.run("tokenmill", "build", PREFECT_HOME=str(tmp_path / "home"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Prefect's own server did not start: NotADirectoryError: " in done.stderr
    assert "set run.engine: inline" in done.stderr


def test_an_embedded_server_with_a_password_serves_the_build_that_knows_it(
    project: Project, home: dict[str, str]
) -> None:
    project.set(run__engine="threads")
    password = {"PREFECT_SERVER_API_AUTH_STRING": "name:word", "PREFECT_API_AUTH_STRING": "name:word"}
    done = project.run("tokenmill", "build", **home, **password)
    assert done.returncode == 0, done.stderr


def test_an_embedded_server_answers_only_who_knows_its_password(project: Project, home: dict[str, str]) -> None:
    script = """
import os, httpx, psutil
from pathlib import Path
from tokenmill.orchestration.session import start_server
with start_server(Path()).serving():
    password = os.environ["PREFECT_API_AUTH_STRING"]
    url = os.environ["PREFECT_API_URL"] + "/block_documents/filter"
    for auth in (None, ("build", "guess"), tuple(password.split(":"))):
        print(httpx.post(url, json={"include_secrets": True}, auth=auth, timeout=60).status_code)
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not any(password in line for line in lines)
    print(password)
"""
    done = project.run(sys.executable, "-c", script, **home)
    assert done.returncode == 0, done.stderr
    *answers, password = done.stdout.split()
    assert answers == ["401", "401", "200"]
    assert password not in done.stderr


def test_an_embedded_server_has_pauses_between_its_writes(home: dict[str, str]) -> None:
    """Prefect takes an interval below a second for 0; its server takes all of a core then."""
    script = """
from tokenmill.orchestration.settings import quiet_environment
quiet_environment()
from prefect.settings import get_current_settings
assert int(get_current_settings().server.services.task_run_recorder.flush_interval) > 0
"""
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **home}, check=True, timeout=PATIENCE_S)


def test_ctrl_c_while_digests_are_taken_ends_the_build(project: Project, home: dict[str, str]) -> None:
    slow = """
import sys, time
from tokenmill.corpus import units
from tokenmill.__main__ import program
blocks = units.blocks
def slowly(*arguments):
    print("reading", file=sys.stderr, flush=True)
    for block in blocks(*arguments):
        time.sleep(1.5)
        yield block
units.blocks = slowly
sys.argv = ["tokenmill", "build"]
sys.exit(program())
"""
    for i in range(100):
        project.write(f"more-{i}.jsonl", ["x"])
    project.set(run__engine="threads", source__unit_bytes_min=0)
    environment = {**os.environ, **home, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", slow]
    before = servers(home)
    with (project.root / STDERR).open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=project.root, env=environment, stderr=file, start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while said(project).count("reading") < 6:  # the rest would take more than a minute
            assert time.monotonic() < deadline
            assert process.poll() is None, said(project)
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=40) == 130
    finally:
        end(process)
    assert "Traceback" not in said(project)
    assert servers(home) == before


def test_the_server_of_a_killed_build_ends_and_the_next_records_every_unit_and_gives_the_bytes_of_an_inline_build(
    new_project: Callable[[str], Project], home: dict[str, str]
) -> None:
    inline, flow = new_project("inline"), new_project("flow")
    inline.build()
    before = servers(home)
    with building(flow, home) as process:
        process.kill()
        process.wait(timeout=PATIENCE_S)
    _until_equal(lambda: servers(home), before)
    for name in "cdefgh":
        (flow.root / f"data/raw/{name}.jsonl").unlink()
    n_known = len(recorded_runs(home, "task_run"))
    done = flow.build(**home)
    assert servers(home) == before
    assert flow.outputs() == inline.outputs()
    assert (flow.root / "dvc.lock").read_bytes() == (inline.root / "dvc.lock").read_bytes()
    stages = ("count", "train-vocab", "encode", "validate")
    assert [line.split(":")[0] for line in done.stderr.splitlines() if ": started" in line] == list(stages)
    assert (f"build {flow.root.name}", "COMPLETED") in recorded_runs(home, "flow_run")
    counted = {(f"count data/raw/{shard}.jsonl", "COMPLETED") for shard in "ab"}  # maybe by the killed build
    units = {f"{stage} data/raw/{shard}.jsonl" for stage in ("encode", "validate") for shard in "ab"}
    recorded = set(recorded_runs(home, "task_run")[n_known:])
    assert recorded - counted == {(unit, "COMPLETED") for unit in units | {"train-vocab 272 tokens"}}


def test_a_server_that_does_not_know_the_flow_run_at_its_end_changes_nothing(home: dict[str, str]) -> None:
    code = """
from prefect.exceptions import ObjectNotFound
from tokenmill.orchestration.server import Server
def flow():
    Server.current().keep("done")
    raise ObjectNotFound(Exception("404"))
server = Server()
with server.serving():
    flow()
print(server.outcome)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **home}
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "may not show how this build ended" in done.stderr


def test_a_command_that_fails_after_its_server_went_away_ends_with_its_own_code(home: dict[str, str]) -> None:
    code = """
import os, sys
from pathlib import Path
from tokenmill.orchestration.settings import quiet_environment
quiet_environment()
from prefect import flow, task
from prefect.events.worker import EventsWorker
from tokenmill.cli import main as cli
from tokenmill.__main__ import program
from tokenmill.errors import TokenmillError
from tokenmill.orchestration.session import start_server
from tokenmill.orchestration.watch import watched
@task
def nothing():
    pass
@flow(persist_result=False)
def work():
    with watched() as work:
        nothing()
        EventsWorker.instance().wait_until_empty()
        server._process.kill()
        for _ in range(100):  # of whose events Prefect would tell the server at the end, each for some seconds
            nothing()
        work.result = "done"
    return work.result
def build(_):
    global server
    server = start_server(Path())
    with server.serving():
        work()
    assert server.outcome == "done"
    raise TokenmillError("no room")
cli.build._build = build
sys.argv = ["tokenmill", "build"]
sys.exit(program())
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **home}, timeout=PATIENCE_S
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("tokenmill: error[TM900]: no room\n")


def _until_equal(found: Callable[[], set[int]], expected: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while found() != expected:
        assert time.monotonic() < deadline, found()
        time.sleep(0.1)
