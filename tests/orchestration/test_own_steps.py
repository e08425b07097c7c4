"""A project's own steps, as the guide shows them: run in Prefect, tracked by DVC, and `dvc repro` agrees."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.builders.prefect_server import prefect_home, recorded_runs
from tests.builders.teams import cli
from tests.conftest import REPOSITORY, Project
from tests.times import PATIENCE_S

GUIDE = (REPOSITORY / "docs/guides/steps.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (tasks/\w+\.py)\n(.*?)```", GUIDE, flags=re.DOTALL))
[STAGES] = re.findall(r"```yaml\n(  clean:.*?)```", GUIDE, flags=re.DOTALL)
[RECIPE] = re.findall(r"```python\n# flows/build\.py: stages\n(.*?)```", GUIDE, flags=re.DOTALL)
LONG = "a document of more than fifty characters, which stays in the dataset"


@pytest.fixture
def own(tmp_path: Path) -> Project:
    """A new project with the steps of the guide, and documents of two lengths in data/all."""
    assert cli(Project(tmp_path), "init", "own").returncode == 0
    project = Project(tmp_path / "own")
    for name, text in FILES.items():
        (project.root / name).write_text(text, encoding="utf-8")
    stages, flow = project.root / "dvc.yaml", project.root / "flows/build.py"
    stages.write_text(
        stages.read_text(encoding="utf-8").replace("stages:\n", f"stages:\n{STAGES}", 1), encoding="utf-8"
    )
    text = re.sub(r"def stages.*?\n\n\n", RECIPE + "\n\n", flow.read_text(encoding="utf-8"), count=1, flags=re.DOTALL)
    imports = "from tasks.clean import clean\nfrom tasks.lengths import lengths\n"
    flow.write_text(text.replace("from tasks.count", f"{imports}from tasks.count", 1), encoding="utf-8")
    write(project, "a.jsonl", [LONG, "short"])
    project.set(train_vocab__vocab_size=270)
    return project


def write(project: Project, name: str, texts: list[str]) -> None:
    path = project.root / "data/all" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": f"{name}-{i}", "text": text}) + "\n" for i, text in enumerate(texts)]
    path.write_text("".join(lines), encoding="utf-8")


def n_documents(project: Project) -> int:
    manifest = json.loads((project.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))
    assert isinstance(manifest["n_documents"], int)
    return manifest["n_documents"]


def assert_dvc_agrees(project: Project) -> None:
    done = project.run("dvc", "status")
    assert done.stdout.strip() == "Data and pipelines are up to date.", done.stdout + done.stderr
    done = project.run("dvc", "repro")
    assert done.returncode == 0, done.stderr
    assert "Running stage" not in done.stdout


@pytest.mark.slow
def test_steps_of_ones_own_run_in_prefect_and_dvc_tracks_them(
    own: Project, tmp_path: Path, prefect_database: Path
) -> None:
    home = {"PREFECT_HOME": str(prefect_home(tmp_path / "prefect", prefect_database))}
    own.build(**home)
    assert n_documents(own) == 1
    assert (own.root / "data/lengths/lengths.csv").read_text(encoding="utf-8").startswith("n_tokens,n_documents\n")
    names = {name.split("-")[0] for name, _state in recorded_runs(home, "task_run")}
    assert {"clean", "lengths", "count data/raw/a.jsonl"} <= names
    assert_dvc_agrees(own)

    write(own, "b.jsonl", [f"{LONG}, too", "short"])
    assert "clean" in own.run("tokenmill", "status").stdout
    actions = own.actions(own.build(**home))
    assert [actions[stage] for stage in ("clean", "count", "encode", "validate", "lengths")] == ["run"] * 5
    assert n_documents(own) == 2
    assert_dvc_agrees(own)
    assert set(own.actions(own.build(**home)).values()) == {"up to date"}

    write(own, "b.jsonl", ["short"])
    done = own.run("dvc", "repro")  # the other way round: DVC runs them, and tokenmill has nothing to do
    assert done.returncode == 0, done.stderr
    assert n_documents(own) == 1
    assert set(own.actions(own.build(**home)).values()) == {"up to date"}


@pytest.mark.slow
def test_an_inline_build_runs_steps_by_their_commands(own: Project, capfd: pytest.CaptureFixture[str]) -> None:
    own.set(run__engine="inline")
    clean = own.root / "tasks/clean.py"
    clean.write_text(clean.read_text(encoding="utf-8") + '    print("cleaned")\n', encoding="utf-8")
    done = own.build()
    assert list(own.actions(done)) == ["clean", "count", "train-vocab", "encode", "lengths", "validate"]
    assert capfd.readouterr().err == "cleaned\n"  # and nothing of it in stdout, which may be JSON
    assert n_documents(own) == 1
    assert (own.root / "data/lengths/lengths.csv").exists()
    assert_dvc_agrees(own)
    assert set(own.actions(own.build()).values()) == {"up to date"}

    (own.root / "data/all/b.jsonl").write_text('{"id": "x"}\n', encoding="utf-8")
    before = own.outputs()
    done = own.run("tokenmill", "build")
    assert done.returncode == 2
    assert "KeyError: 'text'" in done.stderr
    assert "error[TM112]: dvc.yaml: stage clean: `python -m tasks.clean` ended with code 1" in done.stderr
    assert own.outputs() == before


@pytest.mark.slow
def test_a_signal_ends_a_step_of_an_inline_build_and_its_children(own: Project) -> None:
    own.set(run__engine="inline")
    pids = own.root / "pids"
    stages = own.root / "dvc.yaml"
    words = stages.read_text(encoding="utf-8")
    stages.write_text(
        words.replace("cmd: python -m tasks.clean", "cmd: sleep 100 & echo $! > pids.new && mv pids.new pids && wait"),
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen([sys.executable, "-m", "tokenmill", "build"], cwd=own.root, env=environment) as process:
        while not pids.exists():
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 143
    child = int(pids.read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_a_step_does_not_delete_what_it_has_not_made(own: Project, tmp_path: Path, prefect_database: Path) -> None:
    home = {"PREFECT_HOME": str(prefect_home(tmp_path / "prefect", prefect_database))}
    (own.root / "data/raw").mkdir(exist_ok=True)
    mine = own.root / "data/raw/mine.jsonl"
    mine.write_text('{"id": "m", "text": "the only copy"}\n', encoding="utf-8")
    done = own.run("tokenmill", "build", **home)
    assert done.returncode == 2
    assert f"the output of stage clean holds {mine}, which no build has made" in done.stderr
    assert mine.exists()
    mine.unlink()
    own.build(**home)
    (own.root / "data/raw/a.jsonl").chmod(0o644)
    for change in (lambda: None, lambda: write(own, "b.jsonl", [LONG])):
        change()
        mine.write_text('{"id": "m", "text": "the only copy"}\n', encoding="utf-8")
        for arguments in ((), ("--force",)):
            done = own.run("tokenmill", "build", *arguments, **home)
            assert done.returncode == 2, done.stderr
            assert f"the output of stage clean holds {mine}, which no build has made" in done.stderr
            assert mine.exists()
        mine.unlink()
    own.build(**home)


@pytest.mark.slow
def test_an_error_of_a_step_is_of_the_project_and_names_its_line(
    own: Project, tmp_path: Path, prefect_database: Path
) -> None:
    home = {"PREFECT_HOME": str(prefect_home(tmp_path / "prefect", prefect_database))}
    (own.root / "data/all/b.jsonl").write_text('{"id": "x"}\n', encoding="utf-8")
    path = own.root / "tasks/clean.py"
    line = next(i for i, one in enumerate(path.read_text().splitlines(), 1) if '["text"]' in one)
    for _ in range(2):  # what it has written before it failed is not taken for somebody else's
        done = own.run("tokenmill", "build", **home)
        assert done.returncode == 2, done.stderr
        assert f"error[TM112]: {path}, line {line}: KeyError: 'text'. This is code of your project." in done.stderr
        assert "Traceback" not in done.stderr
    (own.root / "data/all/b.jsonl").write_text(
        json.dumps({"id": "x", "text": f"{LONG}\u2028and more"}, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    own.build(**home)
    assert n_documents(own) == 2
    flow = own.root / "flows/build.py"
    flow.write_text(flow.read_text(encoding="utf-8") + "\n(\n", encoding="utf-8")
    done = own.run("tokenmill", "build", "--force", **home)
    assert done.returncode == 2
    assert f"error[TM112]: {flow}, line " in done.stderr and "SyntaxError" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (", rehash: bool = False", "", "too many positional arguments"),
        ("run_build\n", "run_all\n", "cannot import name 'run_all'"),
        ("def build", "def make", "has no attribute 'build'"),
    ],
)
def test_a_flow_that_does_not_fit_is_one_error_that_says_how(own: Project, old: str, new: str, words: str) -> None:
    path = own.root / "flows/build.py"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    done = own.run("tokenmill", "build")
    assert done.returncode == 2, done.stderr
    assert f"{path}: " in done.stderr and words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_project_without_flows_is_told_where_they_come_from(own: Project) -> None:
    (own.root / "flows/build.py").unlink()
    done = own.run("tokenmill", "build")
    assert done.returncode == 2
    assert "not there" in done.stderr and "tokenmill init" in done.stderr
