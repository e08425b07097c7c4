"""Projects that earlier versions made are opened, built on, verified, read and published by this one."""

import json
import shutil
from pathlib import Path

import pytest

import tokenmill
from tests.builders.document_sets import MADE_BY_0_1
from tests.builders.teams import cli, make_team
from tests.conftest import Project, make_project

OF_0_1 = MADE_BY_0_1.parent
EARLIER = {"0.1.0": OF_0_1, "0.2.0": OF_0_1.with_name("made_by_0_2")}  # over that of 0.1.0, with the same counts
SAME_BYTES = ("data/counts/counts.parquet", "data/tokenizer/tokenizer.json", "data/tokenizer/vocab.tiktoken")


@pytest.fixture(params=list(EARLIER))
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Project]:
    """The version, and a copy of a project as that version left it after a build; DVC has the outputs' digests only."""
    project = make_project(tmp_path / "project", {})
    shutil.copytree(OF_0_1, project.root, dirs_exist_ok=True)
    shutil.rmtree(project.root / "data/tokens")
    shutil.copytree(EARLIER[request.param], project.root, dirs_exist_ok=True)
    project.set(run__engine="inline")
    return request.param, project


def documents(project: Project) -> list[list[int]]:
    return [one.tolist() for one in tokenmill.open(project.root / "data/tokens")]


@pytest.mark.slow
def test_a_project_is_built_on_and_published(earlier: tuple[str, Project]) -> None:
    version, project = earlier
    ids = documents(project)
    before = {name: (project.root / name).read_bytes() for name in SAME_BYTES}
    assert cli(project, "verify", *(["--no-source"] if version == "0.1.0" else [])).returncode == 0

    found = json.loads(cli(project, "status", "--json").stdout)["result"]["stages"]
    assert [one["stage"] for one in found if one["would_run"]] == ["count", "train-vocab", "encode", "validate"]
    for stage in found:
        causes = [one for one in stage["changes"] if "DVC's cache" not in one]  # which was left behind
        assert causes == [f"code changed: tokenmill {version} → {tokenmill.__version__}"]

    team = make_team(project)
    assert documents(project) == ids
    assert {name: (project.root / name).read_bytes() for name in SAME_BYTES} == before
    assert cli(project, "verify").returncode == 0
    assert cli(project, "publish", "tokenizer@v1.0.0").returncode == 0
    other = team.clone("other")
    assert cli(other, "fetch", "tokenizer@v1.0.0", "fetched").returncode == 0
    assert (other.root / "fetched/tokenizer.json").read_bytes() == before["data/tokenizer/tokenizer.json"]
