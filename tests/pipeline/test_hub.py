"""Documents of a dataset on a Hugging Face hub, of which a small server has the calls that are needed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.corpora import read_corpus, write_corpus
from tests.builders.hub_server import TOKEN, Hub, hub_of
from tests.conftest import Project, make_project
from tokenmill.dataset.manifest import read_manifest

pytestmark = pytest.mark.slow


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    write_corpus(tmp_path / "hub/data/raw")
    with hub_of(tmp_path / "hub") as one:
        yield one


def with_glob(tmp_path: Path, name: str, glob: str, dependency: str) -> Project:
    project = make_project(tmp_path / name)
    shutil.rmtree(project.root / "data/raw")
    read_corpus(project, glob, [dependency])
    return project


def test_a_build_from_a_hub_has_the_bytes_of_one_from_files(hub: Hub, tmp_path: Path) -> None:
    environment = hub.environment(tmp_path / "home")
    local = with_glob(tmp_path, "local", "data/raw/**/*", "data/raw")
    shutil.copytree(hub.folder / "data/raw", local.root / "data/raw")
    local.build()
    project = with_glob(tmp_path, "remote", "hf://datasets/org/name/data/raw/**/*", "data/objects.json")
    done = project.run("tokenmill", "build", **environment)
    assert done.returncode == 0, done.stderr
    sums = [
        {one.name: one.sha256 for one in read_manifest(one.root / "data/tokens").shards} for one in (local, project)
    ]
    assert sums[0] == sums[1]
    n_read = sum("/resolve/" in one for one in hub.asked)
    done = project.run("tokenmill", "build", **environment)
    assert set(project.actions(done).values()) == {"up to date"}
    assert sum("/resolve/" in one for one in hub.asked) == n_read
    for path in project.root.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("changes", "revision", "words"),
    [
        ({"HF_TOKEN": "hf_another"}, "", "there is no such dataset, or the token may not do this with it"),
        ({}, "@v2", "the dataset has no such revision"),
        ({"HF_HUB_OFFLINE": "1"}, "", "HF_HUB_OFFLINE is set"),
        ({}, "@v1", "found none: there is nothing below hf://datasets/org/name@v1/none/"),
    ],
)
def test_what_a_hub_refuses_is_one_error(
    hub: Hub, tmp_path: Path, changes: dict[str, str], revision: str, words: str
) -> None:
    environment = hub.environment(tmp_path / "home") | changes
    folder = "none" if revision == "@v1" else "data/raw"
    project = with_glob(tmp_path, "remote", f"hf://datasets/org/name{revision}/{folder}/*", "data/objects.json")
    done = project.run("tokenmill", "status", **environment)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr and TOKEN not in done.stderr
