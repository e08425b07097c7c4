"""Files that arrive while a build or a refresh runs are for the next one: they fail nothing, and nothing records them as read."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.builds import build_while
from tests.builders.in_process import tokenmill
from tests.builders.teams import Team, cli, commit, copied, make_team, run
from tests.conftest import Project, new_project
from tokenmill.errors import CorpusError
from tokenmill.features.refresh.refresh import refresh
from tokenmill.pipeline.alone import alone
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.start import start
from tokenmill.stages.recipe import run_inline
from tokenmill.summary import StageSummary

Arrive = Callable[[], object]


def names(project: Project) -> list[str]:
    manifest = json.loads((project.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))
    return [one["name"] for one in manifest["inputs"]]


@pytest.mark.slow
def test_files_that_arrive_at_any_moment_of_a_build_are_told_and_read_by_the_next(
    new_project: Callable[[str], Project], capsys: pytest.CaptureFixture[str]
) -> None:
    alike, project = new_project("alike"), new_project("project")
    alike.build()
    n = 0

    def arrive(moment: str) -> None:
        nonlocal n
        n += 1
        project.write(f"deep/late{n}.jsonl", [f"the late cat, {moment}"])
        (project.root / f"data/raw/{n}.notes").write_text("no document", encoding="utf-8")

    project.set(source__glob="data/raw/**/*.jsonl")
    alike.set(source__glob="data/raw/**/*.jsonl")
    alike.build()
    build_while(project, arrive)
    said = capsys.readouterr().err
    assert f"files that arrived while the build ran: {n:,}, such as data/raw/deep/late1.jsonl." in said
    assert names(project) == ["data/raw/a.jsonl", "data/raw/b.jsonl"]
    assert project.outputs() == alike.outputs()
    assert (project.root / "dvc.lock").read_bytes() == (alike.root / "dvc.lock").read_bytes()
    done = project.run("dvc", "status", "--json")
    assert json.loads(done.stdout)["count"] == [{"changed deps": {"data/raw": "modified"}}]

    again = project.build()
    assert len(names(project)) == 2 + n
    assert project.actions(again)["count"] == "run"
    assert f"count: {n:,} of {2 + n:,} units to do" in again.stderr
    assert json.loads(project.run("dvc", "status", "--json").stdout) == {}
    assert set(project.actions(project.build()).values()) == {"up to date"}


@pytest.mark.slow
def test_a_stage_that_is_up_to_date_stays_so_when_a_file_arrives_before_it_is_looked_at(project: Project) -> None:
    project.build()
    done = build_while(project, lambda moment: project.write("late.jsonl", [moment]))
    assert {one.action for one in done} == {"up to date"}
    assert project.actions(project.build())["encode"] == "run"


@pytest.mark.slow
def test_a_file_that_arrives_in_an_input_that_dvc_would_record_ends_the_build(project: Project) -> None:
    """dvc.yaml names the folder of documents by a variable, which only DVC resolves."""
    with project.edited("dvc.yaml") as pipeline:
        pipeline["vars"] = [{"raw": "data/raw"}]
        for stage in pipeline["stages"].values():
            stage["deps"] = ["${raw}" if dep == "data/raw" else dep for dep in stage["deps"]]
    project.build()
    project.write("c.jsonl", ["one more cat"])
    with pytest.raises(CorpusError, match=r"late\.jsonl changed while the build ran") as raised:
        build_while(project, lambda moment: moment == "after count" and project.write("late.jsonl", [moment]))
    assert raised.value.code == "TM207"
    project.build()
    assert names(project) == [f"data/raw/{name}.jsonl" for name in ("a", "b", "c", "late")]


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A team whose project takes the tokenizer that it published itself."""
    team = make_team(new_project.__wrapped__(tmp_path_factory.mktemp("arrivals"))("project"))  # type: ignore[attr-defined]
    assert cli(team.project, "publish", "tokenizer@v1.0.0").returncode == 0
    path = team.project.root / "params.yaml"
    words = "tokenizer: {from: ., name: tokenizer, version: v1.0.0}"
    lines = [words if line.startswith("tokenizer: null") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    team.project.build()
    commit(team.project)
    return team


def refresh_while(project: Project, arrive: Arrive) -> str | None:
    """The version that a refresh publishes while files arrive before, in and after its build."""

    def run_stages(build: Build) -> list[StageSummary]:
        arrive()
        done = run_inline(build)
        arrive()
        return done

    with alone(project.root, wait=False):
        return refresh(start(project.root / "params.yaml", None, False, False), run_stages).published


@pytest.mark.slow
def test_files_that_arrive_during_a_refresh_are_in_the_next_version_alone(pinned: Team, tmp_path: Path) -> None:
    team = copied(pinned, tmp_path / "team")
    project, n = team.project, 0

    def arrive() -> None:
        nonlocal n
        n += 1
        project.write(f"late{n}.jsonl", ["the cat and the late dog"] * n)

    project.write("new.jsonl", ["the cat and the new dog"])
    assert refresh_while(project, arrive) == "dataset@v0.1.0"
    assert [Path(name).stem for name in names(project)] == ["a", "b", "new"]
    other = team.clone("other")
    subprocess.run(["git", "fetch", "-q", str(project.root), "HEAD"], cwd=other.root, check=True)
    run(other.root, "git", "checkout", "-q", "FETCH_HEAD")
    other.dvc("pull")
    assert sorted(path.stem for path in (other.root / "data/raw").glob("*.jsonl")) == ["a", "b", "new"]
    assert tokenmill(other.root, "status").returncode == 0
    assert refresh_while(project, lambda: None) == "dataset@v0.1.1"
    assert len(names(project)) == 3 + n
    assert refresh_while(project, lambda: None) is None


@pytest.mark.slow
def test_a_commit_without_its_version_is_finished_by_the_next_refresh(pinned: Team, tmp_path: Path) -> None:
    team = copied(pinned, tmp_path / "team")
    team.project.write("new.jsonl", ["the cat and the new dog"])
    team.store.rename(tmp_path / "away")
    team.store.write_text("no folder", encoding="utf-8")  # nothing can be pushed
    assert cli(team.project, "refresh").returncode == 2
    assert "Refresh the dataset" in run(team.project.root, "git", "log", "-1", "--format=%s")
    team.store.unlink()
    (tmp_path / "away").rename(team.store)
    assert refresh_while(team.project, lambda: None) == "dataset@v0.1.0"
    assert run(team.bare, "git", "tag").split() == ["dataset@v0.1.0", "tokenizer@v1.0.0"]
