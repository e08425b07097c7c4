"""A dataset that is downloaded is the one that was uploaded, byte for byte, or it is not there."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.proxy import Proxy
from tests.builders.s3_server import SECRET, client, environment, moto
from tests.builders.teams import cli
from tests.conftest import REPOSITORY, Project, make_project
from tests.times import PATIENCE_S
from tokenmill.dataset.manifest import read_manifest, write_manifest
from tokenmill.features.share.upload import upload
from tokenmill.storage import objects

pytestmark = pytest.mark.slow

FOLDERS = ("tokens", "tables", "tokenizer", "quarantine")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with moto() as url, environment(url, tmp_path_factory.mktemp("aws")):
        client().create_bucket(Bucket="bucket")
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = make_project(tmp_path_factory.mktemp("download") / "project")
    project.set(encode__formats=["parquet", "arrow"])
    project.build()
    return project


@pytest.fixture
def url(s3: None, built: Project) -> Iterator[str]:
    yield upload(built.root, "s3://bucket/sets").url
    objects.delete([one.url for one in objects.list_objects("s3://bucket")])


def files(folder: Path) -> dict[str, bytes]:
    found = [path for one in FOLDERS for path in (folder / one).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_the_round_trip_is_equal_byte_for_byte(built: Project, url: str, tmp_path: Path) -> None:
    here = Project(tmp_path)
    done = cli(here, "download", url, "copy", "--json")
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    result = json.loads(done.stdout)["result"]
    assert result["directory"] == str(tmp_path / "copy") and url.endswith(result["digest"][:16])
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == sorted(FOLDERS)
    assert files(tmp_path / "copy") == files(built.root / "data")
    assert cli(here, "verify", "copy/tokens", "--no-source").returncode == 0
    said = cli(here, "download", url, "copy")
    assert said.returncode == 2 and "error[TM406]" in said.stderr


def test_a_damaged_or_missing_file_of_the_tokenizer_is_named(built: Project, url: str, tmp_path: Path) -> None:
    for name in ("vocab.tiktoken", "golden.json"):
        file = f"{url}/tokenizer/{name}"
        content = objects.get(file)
        for words in ("bytes, expected", "missing"):
            objects.delete([file])
            if words != "missing":
                assert objects.put_new(file, content[:-9])
            done = cli(Project(tmp_path), "download", url, "copy")
            assert done.returncode != 0 and f"{file}: " in done.stderr and words in done.stderr, done.stderr
            assert not (tmp_path / "copy").exists()
        assert objects.put_new(file, content)


def test_from_a_folder(built: Project, tmp_path: Path) -> None:
    folder = upload(built.root, str(tmp_path / "place")).url
    assert cli(Project(tmp_path), "download", f"file://{folder}", "copy").returncode == 0
    assert files(tmp_path / "copy") == files(built.root / "data")


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        ".dvc/config",
        "dvc.yaml",
        "flows/build.py",
        "params.yaml",
        "tokenizer/sitecustomize.py",
        "tokenizer/.git/config",
        "tables/x.parquet",
        "quarantine/x.parquet",
        "tokens/documents/x.parquet",
    ],
)
def test_what_the_manifest_does_not_vouch_for_is_not_downloaded(built: Project, tmp_path: Path, name: str) -> None:
    folder = Path(upload(built.root, str(tmp_path / "place")).url)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"evil")
    record = json.loads((folder / "upload.json").read_bytes())
    record["beside"] = [[name, 4, hashlib.sha256(b"evil").hexdigest()]]  # where an earlier tokenmill looked
    (folder / "upload.json").write_text(json.dumps(record), encoding="utf-8")
    assert cli(Project(tmp_path), "download", str(folder), "copy").returncode == 0
    assert files(tmp_path / "copy") == files(built.root / "data")
    assert {path.name for path in (tmp_path / "copy").iterdir()} == set(FOLDERS)
    if name.startswith(("tokenizer", "tables", "tokens")):
        verified = cli(Project(tmp_path), "verify", str(folder), "--no-source")
        assert verified.returncode == 1 and name.removeprefix("tokens/") in verified.stdout


@pytest.mark.parametrize("name", ["conform.py", "golden.json", "card.json", "README.md", "tokenizer_config.json"])
def test_a_replaced_file_beside_a_tokenizer_is_named(built: Project, tmp_path: Path, name: str) -> None:
    folder = Path(upload(built.root, str(tmp_path / "place")).url)
    content = (folder / "tokenizer" / name).read_bytes()
    (folder / "tokenizer" / name).write_bytes(content.replace(b"e", b"E", 1))
    said = cli(Project(tmp_path), "download", str(folder), "copy")
    assert said.returncode == 2 and f"tokenizer/{name}: not the file that the manifest names" in said.stderr
    assert not (tmp_path / "copy").exists()
    verified = cli(Project(tmp_path), "verify", str(folder), "--no-source")
    assert verified.returncode != 0 and f"tokenizer/{name}" in verified.stdout + verified.stderr


def test_the_program_of_another_tokenmill_that_fetch_wrote_again_is_right(built: Project, tmp_path: Path) -> None:
    """The manifest has the digest of the one that was published."""
    shutil.copytree(built.root / "data", tmp_path / "data")
    manifest = read_manifest(tmp_path / "data/tokens")
    others = [
        one.model_copy(update={"sha256": "0" * 64} if one.name == "conform.py" else {})
        for one in manifest.tokenizer_files
    ]
    write_manifest(manifest.model_copy(update={"tokenizer_files": others}), tmp_path / "data/tokens")
    assert cli(Project(tmp_path), "verify", "data/tokens", "--no-source").returncode == 0
    (tmp_path / "data/tokenizer/conform.py").write_bytes(b"print('evil')")
    verified = cli(Project(tmp_path), "verify", "data/tokens", "--no-source")
    assert verified.returncode == 1 and "tokenizer/conform.py" in verified.stdout


def test_the_card_of_a_dataset_is_written_anew(built: Project, tmp_path: Path) -> None:
    folder = Path(upload(built.root, str(tmp_path / "place")).url)
    card = folder / "tokens/README.md"
    card.write_text(card.read_text(encoding="utf-8") + "<script>", encoding="utf-8")
    assert cli(Project(tmp_path), "download", str(folder), "copy").returncode == 0
    assert files(tmp_path / "copy") == files(built.root / "data")


@pytest.mark.parametrize(
    "name", ["tokens/documents/a.jsonl.parquet", "tables/documents.parquet", "quarantine/quarantine.parquet"]
)
def test_a_changed_file_is_named_and_nothing_is_left(url: str, tmp_path: Path, name: str) -> None:
    content = objects.get(f"{url}/{name}")
    key = f"{url}/{name}".removeprefix("s3://bucket/")
    client().put_object(Bucket="bucket", Key=key, Body=content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    said = cli(Project(tmp_path), "download", url, "copy")
    assert said.returncode == 2 and f"{url}/{name}: not the file that the manifest names" in said.stderr
    assert list(tmp_path.iterdir()) == []


def test_another_tokenizer_is_refused(url: str, tmp_path: Path) -> None:
    name = f"{url}/tokenizer/tokenizer.json"
    model = json.loads(objects.get(name))
    merges = model["model"]["merges"]
    merges[0], merges[1] = merges[1], merges[0]
    client().put_object(Bucket="bucket", Key=name.removeprefix("s3://bucket/"), Body=json.dumps(model).encode())
    said = cli(Project(tmp_path), "download", url, "copy")
    assert said.returncode == 2, said.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named(url: str, tmp_path: Path) -> None:
    here = Project(tmp_path)
    objects.delete([f"{url}/tables/documents.parquet"])
    assert f"{url}/tables/documents.parquet: missing" in cli(here, "download", url, "copy").stderr
    objects.delete([f"{url}/tokens/manifest.json"])
    assert f"{url}: expected an uploaded dataset" in cli(here, "download", url, "copy").stderr
    assert list(tmp_path.iterdir()) == []


def test_a_killed_download_leaves_no_folder_and_the_next_one_none_of_its_files(url: str, tmp_path: Path) -> None:
    proxy = Proxy(int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    running = subprocess.Popen(
        [sys.executable, "-m", "tokenmill", "download", url, "copy"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "AWS_ENDPOINT_URL": proxy.url},
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + PATIENCE_S
    while not list(tmp_path.glob("copy.*.partial/*")):
        proxy.mode = "stall" if list(tmp_path.glob("copy.*.partial")) else "slow"
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
        time.sleep(0.01)
    running.kill()
    running.communicate()
    proxy.mode = "open"
    proxy.close()
    assert not (tmp_path / "copy").exists()
    assert cli(Project(tmp_path), "download", url, "copy").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
