"""verify proves a dataset in object storage as one on this machine, and names the object in which something is wrong."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.builders.s3_server import SECRET, client, environment, moto
from tests.builders.teams import cli
from tests.conftest import Project, make_project
from tokenmill.analysis.remote_dataset import StoredDataset
from tokenmill.features.share.upload import upload
from tokenmill.storage import objects
from tokenmill_reader.copy_check import files_below

pytestmark = pytest.mark.slow

PLACE = "s3://bucket/sets"
FORMATS = {"plain": ["parquet"], "sets": ["parquet", "arrow"]}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with moto() as url, environment(url, tmp_path_factory.mktemp("aws")):
        client().create_bucket(Bucket="bucket")
        yield


@pytest.fixture(scope="module", params=FORMATS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a bad document, and with file sets or without."""
    project = make_project(tmp_path_factory.mktemp("verify") / "project")
    (project.root / "data/raw/bad.jsonl").write_text('{"id": "x", "text": 1}\n{"id": "y", "text": "the cat"}\n')
    project.set(source__on_bad_document="quarantine", source__bad_documents_max=0.5)
    project.set(encode__formats=FORMATS[request.param])
    project.build()
    return project


@pytest.fixture
def url(s3: None, built: Project) -> Iterator[str]:
    """The dataset in object storage, for a test to damage."""
    yield upload(built.root, PLACE).url
    objects.delete([one.url for one in objects.list_objects("s3://bucket")])


def verified(project: Project, url: str, code: int, *arguments: str) -> dict[str, Any]:
    done = cli(project, "verify", url, "--json", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["result"]
    assert "tokenmill-verify-" not in json.dumps(found["findings"] + found["not_checked"])
    return found


def change(url: str, content: bytes) -> None:
    client().put_object(Bucket="bucket", Key=url.removeprefix("s3://bucket/"), Body=content)


def test_a_dataset_is_right_with_its_documents_and_without(
    built: Project, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = verified(built, url, 0)
    assert (found["result"], found["dataset"]) == ("right", url)
    assert found["checked"]["with_documents"] is True
    assert found["checked"]["files"] == found["checked"]["files_in_all"] == 3
    found = verified(Project(tmp_path), url, 0, "--no-source")
    assert found["checked"]["documents"] == 7
    assert list(tmp_path.iterdir()) == [], "no fetched file is left"


def test_a_flipped_a_cut_a_missing_and_an_odd_object_are_named(built: Project, url: str) -> None:
    names = [one for one in objects.list_objects(f"{url}/tokens") if one.url.endswith(".parquet")]
    flipped, cut = sorted(one.url for one in names if "/arrow/" not in one.url)[:2]
    content = objects.get(flipped)
    change(flipped, content[:60] + bytes([content[60] ^ 1]) + content[61:])
    change(cut, objects.get(cut)[:-9])
    objects.delete([f"{url}/tables/documents.parquet"])
    change(f"{url}/tokens/odd.parquet", b"x")
    change(f"{url}/odd.txt", b"x")
    found = verified(built, url, 1, "--no-source")
    what = {one["file"]: one["what"] for one in reversed(found["findings"])}  # the first of each file
    assert "sha256" in what[flipped.removeprefix(f"{url}/tokens/")]
    assert "bytes, expected" in what[cut.removeprefix(f"{url}/tokens/")]
    assert "missing" in what["../tables/documents.parquet"]
    assert "not named by manifest.json" in what["odd.parquet"]
    assert "not a file of an upload" in what["../odd.txt"]
    objects.delete([flipped])
    found = verified(built, url, 1, "--no-source")
    assert "missing" in {one["file"]: one["what"] for one in found["findings"]}[flipped.removeprefix(f"{url}/tokens/")]


def test_a_changed_file_of_a_set_is_named(built: Project, url: str) -> None:
    files = sorted(one.url for one in objects.list_objects(f"{url}/tokens") if "/arrow/" in one.url)
    if not files:
        pytest.skip("without file sets")
    content = objects.get(files[0])
    change(files[0], content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    found = verified(built, url, 1, "--no-source")
    assert files[0].removeprefix(f"{url}/tokens/") in {one["file"] for one in found["findings"]}


def test_a_manifest_of_another_dataset_is_wrong(built: Project, url: str) -> None:
    other = f"{PLACE}/{'0' * 16}"
    for one in objects.list_objects(url):
        objects.copy(one.url, one.url.replace(url, other))
    assert "not of that its folder is named after" in verified(built, other, 1, "--no-source")["findings"][0]["what"]
    said = cli(built, "info", other)
    assert said.returncode == 2 and "but its folder is named after another one" in said.stderr


def test_what_is_beside_and_not_there_is_told(built: Project, url: str) -> None:
    objects.delete([f"{url}/quarantine/quarantine.parquet"])
    found = verified(built, url, 1, "--no-source")
    assert {one["file"] for one in found["findings"]} == {"../quarantine/quarantine.parquet"}
    content = objects.get(f"{url}/tokenizer/vocab.tiktoken")
    change(f"{url}/tokenizer/vocab.tiktoken", content[:-9])
    found = verified(built, url, 1, "--no-source")
    assert "../tokenizer/vocab.tiktoken" in {one["file"] for one in found["findings"]}
    objects.delete([f"{url}/tokenizer/tokenizer.json"])
    said = cli(built, "verify", url, "--no-source")
    assert said.returncode == 2 and f"{url}/tokenizer: expected the dataset's tokenizer" in said.stderr
    assert cli(built, "verify", url, "--no-source", "--tokenizer", "data/tokenizer").returncode == 1
    objects.delete([f"{url}/tokens/manifest.json"])
    said = cli(built, "verify", url)
    assert said.returncode == 2 and f"{url}: expected an uploaded dataset" in said.stderr


def test_info_reads_the_manifest_alone(built: Project, url: str) -> None:
    objects.delete([one.url for one in objects.list_objects(url) if not one.url.endswith("manifest.json")])
    there, here = (json.loads(cli(built, "info", *one, "--json").stdout)["result"] for one in ([f"{url}/"], []))
    assert there.pop("dataset") == url and here.pop("dataset") == str(built.root / "data/tokens")
    assert there == here
    assert url in cli(built, "info", url).stdout


def test_a_dataset_in_a_folder_is_verified_where_it_is(built: Project, tmp_path: Path) -> None:
    folder = upload(built.root, str(tmp_path / "place")).url
    for name in (folder, f"{folder}/tokens", f"file://{folder}"):
        assert verified(Project(tmp_path), name, 0, "--no-source")["dataset"] == f"{folder}/tokens"
        assert cli(Project(tmp_path), "info", name).returncode == 0
    os.truncate(f"{folder}/tokens/documents/a.jsonl.parquet", 100)
    assert verified(Project(tmp_path), folder, 1, "--no-source")["findings"][0]["file"] == "documents/a.jsonl.parquet"


def test_a_fetched_file_is_there_while_it_is_checked(url: str, tmp_path: Path) -> None:
    remote = StoredDataset(url, tmp_path)
    with remote.at_hand("documents/a.jsonl.parquet", Event()):
        assert (remote.tokens / "documents/a.jsonl.parquet").read_bytes() == objects.get(
            f"{url}/tokens/documents/a.jsonl.parquet"
        )
    assert not files_below(remote.tokens)
    remote.keeps = True
    with remote.at_hand("documents/a.jsonl.parquet", Event()), remote.at_hand("of-nobody", Event()):
        pass
    assert files_below(remote.tokens) == ["documents/a.jsonl.parquet"]


def test_a_storage_that_is_away_is_no_verdict(built: Project, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    said = cli(built, "verify", url)
    assert said.returncode == 2 and "cannot be reached now" in said.stderr
