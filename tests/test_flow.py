"""The build as a real Prefect flow, with the embedded server, in a Prefect home of the test's own."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import REPOSITORY, Project

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a Prefect that knows no server."""
    return {"PREFECT_HOME": str(tmp_path_factory.mktemp("prefect"))}


def runs(home: dict[str, str], table: str) -> list[tuple[str, str]]:
    database = sqlite3.connect(Path(home["PREFECT_HOME"]) / "prefect.db")
    found: list[tuple[str, str]] = database.execute(f"select name, state_type from {table} order by created").fetchall()
    database.close()
    return found


def artifacts(home: dict[str, str]) -> dict[str, Any]:
    """What the artifact of each key shows last."""
    database = sqlite3.connect(Path(home["PREFECT_HOME"]) / "prefect.db")
    found = database.execute("select key, data from artifact where key is not null order by created").fetchall()
    database.close()
    return {key: _value(data) for key, data in found}


def _value(data: Any) -> Any:
    return _value(json.loads(data)) if isinstance(data, str) else data


def servers(home: dict[str, str]) -> set[int]:
    return {
        process.pid
        for process in psutil.process_iter(["cmdline", "environ"])
        if any("prefect.server" in part for part in process.info["cmdline"] or [])
        and (process.info["environ"] or {}).get("PREFECT_HOME") == home["PREFECT_HOME"]
    }


def test_a_flow_gives_the_bytes_of_an_inline_build_and_records_every_unit(
    new_project: Callable[[str], Project], home: dict[str, str]
) -> None:
    inline, flow = new_project("inline"), new_project("flow")
    flow.set(run__engine="threads")
    inline.build()
    before = servers(home)
    done = flow.build(**home)
    assert flow.outputs() == inline.outputs()
    assert (flow.root / "dvc.lock").read_bytes() == (inline.root / "dvc.lock").read_bytes()
    stages = ("count", "train-vocab", "encode", "validate")
    assert done.stderr.splitlines()[1:] == [f"{stage}: started" for stage in stages]
    assert (f"build {flow.root.name}", "COMPLETED") in runs(home, "flow_run")
    units = {f"{stage} data/raw/{shard}.jsonl" for stage in ("count", "encode", "validate") for shard in "ab"}
    assert set(runs(home, "task_run")) == {(unit, "COMPLETED") for unit in units}
    assert servers(home) == before
    shown = artifacts(home)
    assert [row["stage"] for row in shown["tokenmill-build"]] == list(stages)
    assert shown["tokenmill-build"][0]["documents"] == "6"


def test_a_failed_unit_fails_the_flow_with_its_one_message(project: Project, home: dict[str, str]) -> None:
    project.set(run__engine="threads")
    (project.root / "data/raw/c.jsonl").write_text('{"id": "x"}\n', encoding="utf-8")
    done = project.run("tokenmill", "build", **home)
    assert done.returncode == 2
    _starting, started, error = done.stderr.splitlines()
    assert started == "count: started"
    assert error.startswith("tokenmill: error: data/raw/c.jsonl")
    assert runs(home, "flow_run")[-1][1] == "FAILED"
    assert project.outputs() == {}


def test_an_inline_build_and_one_with_nothing_to_do_do_not_import_prefect(project: Project) -> None:
    script = "import sys; from tokenmill.cli import main; main(['build']); assert 'prefect' not in sys.modules"
    assert project.run(sys.executable, "-c", script).returncode == 0
    project.set(run__engine="threads")
    assert project.run(sys.executable, "-c", script).returncode == 0


def _start(project: Project, home: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts a build that is at work for some seconds, and waits until its flow runs."""
    words = " ".join(f"w{i}" for i in range(200_000))
    for name in "cdefgh":
        project.write(f"{name}.jsonl", [words] * 8)
    project.set(run__engine="threads", run__workers=1)
    environment = {**os.environ, **home, "PYTHONPATH": str(REPOSITORY)}
    command = [str(Path(sys.executable).parent / "tokenmill"), "build"]
    with said(project).open("w", encoding="utf-8") as file:  # a pipe would stay open in a server that is left behind
        process = subprocess.Popen(command, cwd=project.root, env=environment, stderr=file, start_new_session=True)
    deadline = time.monotonic() + 120
    while "count: started" not in said(project).read_text(encoding="utf-8"):
        assert time.monotonic() < deadline
        assert process.poll() is None, said(project).read_text(encoding="utf-8")
        time.sleep(0.05)
    return process


def said(project: Project) -> Path:
    return project.root / "stderr.txt"


@pytest.mark.parametrize(
    ("send", "number", "code"),
    [(os.kill, signal.SIGINT, 130), (os.killpg, signal.SIGINT, 130), (os.kill, signal.SIGTERM, 143)],
    ids=["interrupt", "Ctrl-C in a terminal, which reaches the server, too", "terminate"],
)
def test_a_signal_ends_the_build_with_its_code_and_leaves_nothing_behind(
    project: Project, home: dict[str, str], send: Callable[[int, int], None], number: int, code: int
) -> None:
    before = servers(home)
    process = _start(project, home)
    send(process.pid, number)
    assert process.wait(timeout=60) == code
    words = said(project).read_text(encoding="utf-8")
    assert "Traceback" not in words
    assert "Run `tokenmill build` to go on" in words
    assert project.outputs() == {}
    assert servers(home) == before


def test_the_server_of_a_killed_build_is_ended_by_the_next(project: Project, home: dict[str, str]) -> None:
    before = servers(home)
    process = _start(project, home)
    process.kill()
    process.wait(timeout=60)
    left = servers(home) - before
    assert len(left) == 1
    for name in "cdefgh":
        (project.root / f"data/raw/{name}.jsonl").unlink()
    project.build(**home)
    deadline = time.monotonic() + 10
    while servers(home) & left and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not servers(home) & left
