"""gc removes the datasets that no git revision names, and nothing else."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.s3_server import SECRET, client, environment, moto
from tests.builders.teams import Team, cli, commit, copied, make_team, run
from tests.conftest import Project, new_project
from tokenmill.storage import objects

pytestmark = pytest.mark.slow

PLACE = "s3://bucket/sets"
DAY_S = 86_400


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with moto() as url, environment(url, tmp_path_factory.mktemp("aws")):
        client().create_bucket(Bucket="bucket")
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Team:
    folder = tmp_path_factory.mktemp("built")
    return make_team(new_project.__wrapped__(folder)("project"))  # type: ignore[attr-defined]


@pytest.fixture
def team(built: Team, s3: None, tmp_path: Path) -> Iterator[Team]:
    yield copied(built, tmp_path / "team")
    objects.delete([one.url for one in objects.list_objects("s3://bucket")])


def upload(project: Project, place: str) -> str:
    """Uploads the build, and gives the name of its folder."""
    done = cli(project, "upload", place)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().rpartition("/")[2]


def build_another(project: Project, i: int) -> None:
    project.write("new.jsonl", [f"document {i}"])
    project.build()
    project.dvc("add", "data/raw")
    commit(project, f"More {i}")


def gc(project: Project, place: str, *arguments: str) -> dict[str, Any]:
    done = cli(project, "gc", place, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["result"]
    return found


def states(found: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["state"] for one in found["datasets"]}


def refused(project: Project, *arguments: str) -> str:
    done = cli(project, "gc", *arguments)
    assert done.returncode == 2, done.stdout
    return done.stderr


def three_uploads(project: Project, place: str) -> list[str]:
    """The datasets of a commit with a tag, of one that nothing names, and of the tip of the branch."""
    names = [upload(project, place)]
    run(project.root, "git", "tag", "-a", "-m", "first", "dataset@v1.0.0")
    run(project.root, "git", "push", "-q", "origin", "dataset@v1.0.0")
    for i in range(2):
        build_another(project, i)
        names.append(upload(project, place))
    assert len(set(names)) == 3
    return names


def test_what_a_tag_or_a_branch_names_is_kept_and_the_rest_removed(team: Team) -> None:
    project = team.project
    tagged, unnamed, tip = three_uploads(project, PLACE)
    client().put_object(Bucket="bucket", Key="sets/of-another/file", Body=b"x")
    before = {one.url for one in objects.list_objects(PLACE)}
    found = gc(project, PLACE)
    assert states(found) == {tagged: "kept", unnamed: "unnamed", tip: "kept"}
    named_by = {one["name"]: one["named_by"] for one in found["datasets"]}
    assert named_by[tagged] == ["dataset@v1.0.0"] and "HEAD" in named_by[tip] and not named_by[unnamed]
    assert {one.url for one in objects.list_objects(PLACE)} == before, "without --delete it only lists"
    shown = cli(project, "gc", PLACE).stdout
    assert "dataset@v1.0.0" in shown and "run it again with --delete" in shown
    gc(project, PLACE, "--delete")
    after = {one.url for one in objects.list_objects(PLACE)}
    assert after == {url for url in before if unnamed not in url}
    assert states(gc(project, PLACE)) == {tagged: "kept", tip: "kept"}
    gc(project, PLACE, "--keep", "HEAD", "--delete")
    assert states(gc(project, PLACE)) == {tip: "kept"}


def test_an_interrupted_upload_is_left_alone_for_a_day(team: Team, tmp_path: Path) -> None:
    project, place = team.project, tmp_path / "place"
    tagged, unnamed, tip = three_uploads(project, str(place))
    for name in (unnamed, tip):
        (place / name / "tokens/manifest.json").unlink()
    for path in (place / unnamed).rglob("*"):
        os.utime(path, (time.time() - 2 * DAY_S,) * 2)
    found = gc(project, str(place), "--delete")
    assert states(found) == {tagged: "kept", unnamed: "leftover", tip: "uploading"}
    assert sorted(path.name for path in place.iterdir()) == sorted([tagged, tip])


def test_a_dataset_without_its_record_is_not_removed(team: Team) -> None:
    tagged, unnamed, tip = three_uploads(team.project, PLACE)
    objects.delete([f"{PLACE}/{unnamed}/upload.json"])
    assert states(gc(team.project, PLACE, "--delete")) == {tagged: "kept", unnamed: "unknown", tip: "kept"}
    assert states(gc(team.project, PLACE))[unnamed] == "unknown"


def test_it_refuses_where_git_does_not_know_all_that_is_to_be_kept(team: Team, tmp_path: Path) -> None:
    project = team.project
    name = upload(project, PLACE)
    commit(project, "Record")
    other = team.clone("other")
    run(other.root, "git", "commit", "-q", "--allow-empty", "-m", "More")
    run(other.root, "git", "push", "-q", "origin", "HEAD:new")
    assert "origin has 1 branches or tags that are not here, such as refs/heads/new" in refused(project, PLACE)
    run(project.root, "git", "fetch", "-q", "origin")
    assert states(gc(project, PLACE)) == {name: "kept"}
    assert "git has no such revision" in refused(project, PLACE, "--keep", "v9")
    run(tmp_path, "git", "clone", "-q", "--depth", "1", f"file://{team.bare}", "shallow")
    assert "is a shallow clone" in refused(Project(tmp_path / "shallow"), PLACE)
    (other.root / ".git").rename(other.root / "git")
    assert "Without the project's git repository" in refused(other, PLACE)


def test_it_refuses_where_nothing_would_be_kept(team: Team) -> None:
    upload(team.project, PLACE)
    build_another(team.project, 1)
    assert "it has 1 dataset, none of which a kept revision names" in refused(
        team.project, PLACE, "--keep", "HEAD", "--delete"
    )
    assert objects.list_objects(PLACE)
    assert gc(team.project, "s3://bucket/empty")["datasets"] == []


def test_a_branch_with_a_dvc_lock_that_cannot_be_read_is_not_taken_for_one_without_a_dataset(team: Team) -> None:
    project = team.project
    upload(project, PLACE)
    commit(project, "Record")
    run(project.root, "git", "checkout", "-q", "-b", "half")
    (project.root / "dvc.lock").write_text("<<<<<<< HEAD\n", encoding="utf-8")
    run(project.root, "git", "commit", "-q", "-a", "-m", "Half a merge")
    run(project.root, "git", "checkout", "-q", "-")
    assert "dvc.lock of half cannot be read" in refused(project, PLACE, "--delete")
    assert objects.list_objects(PLACE)


def test_a_place_without_datasets_is_told(team: Team, tmp_path: Path) -> None:
    done = cli(team.project, "gc", str(tmp_path / "mistyped"))
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/mistyped has no datasets" in done.stderr
