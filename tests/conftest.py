"""Projects of a test's own: a git and DVC repository in a temporary folder, with a small corpus."""

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from ruamel.yaml import YAML

from tests.builders import in_process
from tests.builders.in_process import Said
from tests.builders.prefect_server import Server, make_database, prefect_home, standing_server
from tests.times import PATIENCE_S, Recorder
from tokenmill.layout import PAGE_FILE

REPOSITORY = Path(__file__).parent.parent
SHARED = REPOSITORY.parent / "shared"

_MEMORY = Path("/dev/shm")
_MEMORY_BYTES_MIN = 8 * 2**30
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES_MIN:
    # On a disk, builds wait for each file that they write: with three processes a third of the time.
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

settings.register_profile("no deadline", deadline=None)  # machines are shared and noisy
settings.load_profile("no deadline")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TIKTOKEN_CACHE_DIR"] = ""  # it keeps files by their path, and would read those of an earlier run
os.environ.pop("PREFECT_API_URL", None)
os.environ["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = str(int(PATIENCE_S))  # 20 otherwise
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, processes would take it over to ignore it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # the same in the background of a shell without job control
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Records the seconds of the test files, in the process that has the reports of all."""
    if "PYTEST_XDIST_WORKER" not in os.environ and config.pluginmanager.has_plugin("cacheprovider"):
        config.pluginmanager.register(Recorder(config))


def pytest_collection_finish() -> None:
    """Keeps Python from looking for garbage among the modules, in a process where collecting takes a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deals the slow tests out to the worker processes, so that each begins with its share and none is left for the end.

    `--dist worksteal` cuts the list into one part for each process, and moves tests from the end of a part to a process that has
    finished its own. The slow tests of a file stay together, for the fixtures that they share; and so do those of all files
    that use the one Prefect server, since a second server costs more than most tests.
    """
    groups: dict[str, list[pytest.Item]] = {}
    others = []
    for item in items:
        if item.get_closest_marker("slow") is None:
            others.append(item)
        else:
            is_served = "server" in getattr(item, "fixturenames", ())
            groups.setdefault("server" if is_served else item.path.as_posix(), []).append(item)
    n_parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    parts: list[list[pytest.Item]] = [[] for _ in range(n_parts)]
    for group in sorted(groups.values(), key=len, reverse=True):
        min(parts, key=len).extend(group)
    n_left = len(items)
    for i, part in enumerate(parts):
        n_tests = n_left // (n_parts - i)  # as worksteal counts them
        n_left -= n_tests
        n_more = max(0, n_tests - len(part))
        part.extend(others[:n_more])
        del others[:n_more]
    items[:] = [item for part in parts for item in part] + others


DOCUMENTS = {
    "a.jsonl": ["the cat sat on the mat", "the dog sat on the log", ""],
    "b.jsonl": ["a cat and a dog <|endoftext|> and a mat", "naïve café – 東京 🙂", "the the the the"],
}


@dataclass(frozen=True)
class Project:
    """A folder with params.yaml, dvc.yaml and data/raw, under git and DVC."""

    root: Path

    @contextmanager
    def edited(self, name: str) -> Iterator[dict[str, Any]]:
        """What a YAML file holds, for the block to change; it is written afterwards."""
        path = self.root / name
        yaml = YAML(typ="safe")  # with the parser in C, as the other one takes an eighth of the time of quick tests
        yaml.default_flow_style = False  # in braces, DVC does not read a URL without quotes
        found = yaml.load(path.read_text(encoding="utf-8"))
        yield found
        with path.open("w", encoding="utf-8") as file:
            yaml.dump(found, file)

    def set(self, **changes: Any) -> None:
        """Changes params.yaml: section__key=value, or section=value for a whole section."""
        with self.edited("params.yaml") as params:
            for name, value in changes.items():
                section, _, key = name.partition("__")
                (params.setdefault(section, {}) if key else params)[key or section] = value

    def set_yaml(self, **changes: str) -> None:
        """Changes params.yaml like `set`, to values that are YAML."""
        self.set(**{name: YAML(typ="safe").load(value) for name, value in changes.items()})

    def depend(self, name: str, *stages: str) -> None:
        """Names a file in the deps of stages in dvc.yaml."""
        with self.edited("dvc.yaml") as pipeline:
            for stage in stages:
                pipeline["stages"][stage]["deps"].append(name)

    def set_drop(self, name: str) -> None:
        """Names a file as source.drop in params.yaml, and in the deps of dvc.yaml."""
        self.set(source__drop=name)
        self.depend(name, "count", "encode", "validate")

    def write(self, name: str, documents: Sequence[str]) -> Path:
        """Writes a shard of JSON lines into data/raw."""
        path = self.root / "data/raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"id": f"{name}-{i}", "text": text}) + "\n" for i, text in enumerate(documents)]
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def write_bad_end(self, name: str) -> None:
        """Writes a shard whose document in line 21 has no text. That is behind those at which a build looks before it counts."""
        with self.write(name, ["some words " * 10_000] * 20).open("a", encoding="utf-8") as file:
            file.write('{"id": "x"}\n')

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the environment's own bin directory in the project's folder."""
        binaries = str(Path(sys.executable).parent)
        environment = {
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            **env,
        }
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def cli(self, *arguments: str) -> Said:
        """Runs `tokenmill` in this process."""
        return in_process.tokenmill(self.root, *arguments)

    def dvc(self, *arguments: str) -> None:
        """Runs `dvc` in this process, quietly, and expects it to end well."""
        in_process.dvc(self.root, *arguments)

    def build(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str] | Said:
        """Runs `tokenmill build`, and expects it to end well: in this process, or with variables in a process of its own."""
        done = self.run("tokenmill", "build", *arguments, **env) if env else self.cli("build", *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def actions(self, done: Any) -> dict[str, str]:
        """What the table at the end says was done with each stage."""
        lines = [re.split(r"\s{2,}", line) for line in done.stdout.splitlines()[1:]]
        return {line[0]: line[-1].split(",")[0] for line in lines}

    def outputs(self) -> dict[str, bytes]:
        """Every file that a build made, by name, but for the page that has the seconds of the build."""
        made = [path for path in (self.root / "data").rglob("*") if path.is_file() and "raw" not in path.parts]
        made = [path for path in made if path != self.root / PAGE_FILE]
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in made}


def make_project(root: Path, documents: Mapping[str, Sequence[str]] = DOCUMENTS) -> Project:
    """A project with these documents, by the names of their shards, and run.engine: inline."""
    root.mkdir()
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy(REPOSITORY / name, root)
    for folder in ("flows", "tasks"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    project = Project(root)
    with project.edited("dvc.yaml") as pipeline:
        for stage in pipeline["stages"].values():  # the project has no code of its own
            stage["deps"] = [dep for dep in stage["deps"] if dep.startswith("data/")]
    project.set(
        train_vocab__vocab_size=272,
        source__unit_bytes_min=0,
        run__engine="inline",
        run__workers=2,
        run__report_page=False,
    )
    for name, texts in documents.items():
        project.write(name, texts)
    shutil.copytree(_repository().name, root, dirs_exist_ok=True)
    return project


@cache
def _repository() -> tempfile.TemporaryDirectory[str]:
    """A folder under git and DVC, with nothing in it: to make one takes a second, to copy it none."""
    folder = tempfile.TemporaryDirectory(prefix="tokenmill-repository-")
    subprocess.run(["git", "init", "-q", folder.name], check=True)
    in_process.dvc(Path(folder.name), "init")
    return folder


@pytest.fixture
def new_project(tmp_path: Path) -> Callable[[str], Project]:
    """Makes such projects."""
    return lambda name: make_project(tmp_path / name)


@pytest.fixture
def project(new_project: Callable[[str], Project]) -> Project:
    """One such project."""
    return new_project("project")


@pytest.fixture(scope="session", autouse=True)
def _caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keeps what tokenmill remembers for a user out of the account."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("caches"))


@pytest.fixture(scope="session")
def prefect_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of Prefect, for all processes: a server takes six seconds to make its tables in a home without one."""
    folder = tmp_path_factory.getbasetemp()
    path = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "prefect.db"
    make_database(path)
    return path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, prefect_database: Path) -> Iterator[Server]:
    """A Prefect server that all tests of this process share."""
    with standing_server(prefect_home(tmp_path_factory.mktemp("prefect-server") / "home", prefect_database)) as server:
        yield server
