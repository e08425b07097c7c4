"""Starts a Prefect server for tests on 127.0.0.1, and queries it."""

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.times import PATIENCE_S


@dataclass(frozen=True)
class Server:
    """A server that runs, with a Prefect home of its own."""

    url: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """What makes Prefect use it."""
        return {"PREFECT_API_URL": self.url, "PREFECT_HOME": str(self.home)}

    def flow_run(self, name: str) -> dict[str, Any]:
        """The latest flow run of that name."""
        named = {"flow_runs": {"name": {"any_": [name]}}, "sort": "START_TIME_DESC", "limit": 1}
        [found] = self.post("flow_runs/filter", named)
        return dict(found)

    def task_states(self, flow_run: dict[str, Any]) -> dict[str, tuple[str, str]]:
        """Name and message of the state of each task run, by its name, when all have ended: they are recorded later."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            runs = self.post("task_runs/filter", {"flow_runs": {"id": {"any_": [flow_run["id"]]}}})
            final = ("COMPLETED", "FAILED", "CRASHED")
            if runs and all(run["state"]["type"] in final for run in runs):
                return {run["name"]: (run["state"]["name"], run["state"]["message"]) for run in runs}
            assert time.monotonic() < deadline, runs
            time.sleep(0.2)

    def artifacts(self, flow_run: dict[str, Any]) -> dict[str, Any]:
        """What the artifact of each key shows."""
        found = self.post("artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [flow_run["id"]]}}})
        return {one["key"]: one["data"] for one in found}

    def logs(self, flow_run: dict[str, Any]) -> str:
        """What was logged in a flow run."""
        return "\n".join(
            one["message"] for one in self.post("logs/filter", {"logs": {"flow_run_id": {"any_": [flow_run["id"]]}}})
        )

    def cancel(self, flow_run: dict[str, Any]) -> None:
        """What the button in the web page and `prefect flow-run cancel` do."""
        self.post(f"flow_runs/{flow_run['id']}/set_state", {"state": {"type": "CANCELLING"}})

    def delete(self, flow_run: dict[str, Any]) -> None:
        """What the button in the web page does."""
        self._ask("DELETE", f"flow_runs/{flow_run['id']}", None)

    def post(self, path: str, body: Any) -> Any:
        """What the server answers."""
        return self._ask("POST", path, body).json()

    def _ask(self, method: str, path: str, body: Any) -> httpx.Response:
        """Asked again while the server's database is locked, as Prefect's own client does."""
        deadline = time.monotonic() + PATIENCE_S
        while (answer := httpx.request(method, f"{self.url}/{path}", json=body, timeout=PATIENCE_S)).status_code == 503:
            assert time.monotonic() < deadline, answer.text
            time.sleep(1)
        return answer.raise_for_status()


def make_database(path: Path) -> None:
    """Makes an empty database of Prefect, unless another process has made it."""
    if path.exists():
        return
    with tempfile.TemporaryDirectory(dir=path.parent) as home:
        _upgrade(Path(home))
        (Path(home) / "prefect.db").replace(path)


def _upgrade(home: Path) -> None:
    """Runs Prefect's migrations on the database of a Prefect home, and makes it if it is missing."""
    command = [str(Path(sys.executable).parent / "prefect"), "server", "database", "upgrade", "-y"]
    environment = {**os.environ, "PREFECT_HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def prefect_home(folder: Path, database: Path) -> Path:
    """A new Prefect home in `folder`, with a copy of an empty database."""
    folder.mkdir()
    shutil.copy(database, folder / "prefect.db")
    return folder


@contextmanager
def standing_server(home: Path) -> Iterator[Server]:
    """A server while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}/api", home)
    command = [str(Path(sys.executable).parent / "prefect"), "server", "start", "--host", "127.0.0.1"]
    environment = {**os.environ, **server.environment, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    with (home / "server.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen([*command, "--port", str(port)], env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _answers(server.url):
            assert process.poll() is None and time.monotonic() < deadline, (home / "server.txt").read_text()
            time.sleep(0.2)
        yield server
    finally:
        end(process)


def end(process: "subprocess.Popen[Any]") -> None:
    """Ends a process and those that it started."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in psutil.wait_procs(children, timeout=5)[1]:
        child.kill()


def recorded_runs(home: dict[str, str], table: str) -> list[tuple[str, str]]:
    """Name and state of each flow run or task run in the database of a Prefect home, in order."""
    database = sqlite3.connect(Path(home["PREFECT_HOME"]) / "prefect.db")
    found: list[tuple[str, str]] = database.execute(f"select name, state_type from {table} order by created").fetchall()
    database.close()
    return found


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).is_success
    except httpx.HTTPError:
        return False
