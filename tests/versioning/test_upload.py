"""A dataset in a place is there whole or not at all, whoever uploads it and whenever they are killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import tokenmill
from tests.builders.cloud_servers import cloud
from tests.builders.proxy import Proxy
from tests.builders.s3_server import KEY, SECRET, client, environment, moto
from tests.builders.teams import Team, cli, commit, copied, make_team, run
from tests.conftest import REPOSITORY, Project, new_project
from tests.times import PATIENCE_S
from tokenmill.storage import anywhere, objects
from tokenmill.storage.atomic import md5_file

pytestmark = pytest.mark.slow

N_SHARDS = 40
PLACE = "s3://bucket/sets"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an S3 server that the environment names."""
    with moto() as url, environment(url, tmp_path_factory.mktemp("aws")):
        yield url


@pytest.fixture
def bucket(s3: str) -> Iterator[str]:
    client().create_bucket(Bucket="bucket")
    yield s3
    objects.delete([one.url for one in objects.list_objects("s3://bucket")])
    client().delete_bucket(Bucket="bucket")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """One build of many files, which the tests copy."""
    folder = tmp_path_factory.mktemp("built")
    project = new_project.__wrapped__(folder)("project")  # type: ignore[attr-defined]
    for i in range(N_SHARDS):
        project.write(f"more/{i:02}.jsonl", [f"document {i} about {n} cats" for n in range(20)])
    (project.root / "data/raw/bad.jsonl").write_text('{"id": "x", "text": 1}\n{"id": "y", "text": "the cat"}\n')
    project.set(source__on_bad_document="quarantine", source__bad_documents_max=0.01)
    return make_team(project)


@pytest.fixture
def team(built: Team, tmp_path: Path) -> Team:
    return copied(built, tmp_path / "team")


def upload(project: Project, place: str = PLACE) -> dict[str, Any]:
    """Runs `tokenmill upload`, and expects it to end well."""
    done = cli(project, "upload", place, "--json")
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr and KEY not in done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["result"]
    return found


def local_files(project: Project) -> dict[str, bytes]:
    """The files of the dataset and of what is beside it, by their names in a place."""
    data = project.root / "data"
    return {
        path.relative_to(data).as_posix(): path.read_bytes()
        for folder in ("tokens", "tables", "tokenizer", "quarantine")
        for path in (data / folder).rglob("*")
        if path.is_file()
    }


def stored_files(url: str) -> dict[str, bytes]:
    found = {one.url.removeprefix(f"{url}/"): objects.get(one.url) for one in objects.list_objects(url)}
    assert found.pop("upload.json")
    return found


def begun(project: Project, *arguments: str, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tokenmill", *arguments],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_is_uploaded_is_the_dataset_and_git_has_a_record_of_it(team: Team, bucket: str) -> None:
    project = team.project
    done = cli(project, "upload", f"{PLACE}/")
    assert done.returncode == 0, done.stderr
    digest = json.loads((project.root / "data/tokens/manifest.json").read_text())["digest"]
    url = f"{PLACE}/{digest[:16]}"
    assert done.stdout == f"{url}\n"
    assert stored_files(url) == local_files(project)
    record = json.loads((project.root / "data/uploads.json").read_text())
    assert record[digest]["urls"] == [url]
    assert record[digest]["commit"] == run(project.root, "git", "rev-parse", "HEAD").strip()
    assert run(project.root, "git", "status", "--short").strip() == "?? data/uploads.json"
    assert "Commit data/uploads.json" in done.stderr
    run(project.root, "git", "add", "data/uploads.json")
    run(project.root, "git", "commit", "-m", "uploaded")
    once_more = cli(project, "upload", PLACE)
    assert "sent 0 bytes" in once_more.stderr
    assert "Commit" not in once_more.stderr
    again = upload(project)
    assert (again["url"], again["files"]["sent"], again["sent_bytes"]) == (url, 0, 0)
    assert json.loads((project.root / "data/uploads.json").read_text()) == record
    for path in project.root.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert SECRET.encode() not in content and KEY.encode() not in content, path


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_a_place_of_google_or_azure(team: Team, scheme: str, tmp_path: Path) -> None:
    project = team.project
    with cloud(scheme, tmp_path):
        place = f"{scheme}://bucket/sets"
        url = upload(project, place)["url"]
        assert cli(project, "verify", url).returncode == 0
        assert stored_files(url) == local_files(project)
        assert read_alike(url, tmp_path / "cache", project)
        assert cli(project, "download", url, str(tmp_path / "copy")).returncode == 0
        manifest = (project.root / "data/tokens/manifest.json").read_bytes()
        assert (tmp_path / "copy/tokens/manifest.json").read_bytes() == manifest
        project.write("new.jsonl", ["document 1 about 1 cats"])
        project.build()
        project.dvc("add", "data/raw")
        commit(project, "More")
        again = upload(project, place)
        assert again["files"]["copied"] > 0
        assert stored_files(again["url"]) == local_files(project)
        done = cli(project, "gc", place, "--delete")  # no branch names the first one any more
        assert done.returncode == 0, done.stderr
        assert not objects.list_objects(url)
        assert stored_files(again["url"]) == local_files(project)


def read_alike(url: str, cache: Path, project: Project) -> bool:
    """Whether the dataset of a URL has the items of the project's, in the files' order and shuffled."""
    there, here = (
        tokenmill.open(url, cache=cache).sequences(8),
        tokenmill.open(project.root / "data/tokens").sequences(8),
    )
    pairs = [(there, here), (there.shuffle(1, block=4), here.shuffle(1, block=4))]
    return len(here) > N_SHARDS and all(np.array_equal(list(one), list(other)) for one, other in pairs)


def test_what_was_uploaded_is_read_where_it_lies(team: Team, bucket: str, tmp_path: Path) -> None:
    url = upload(team.project)["url"]
    assert read_alike(url, tmp_path / "cache", team.project)
    assert (
        tokenmill.open(url, cache=tmp_path / "cache").state()
        == tokenmill.open(team.project.root / "data/tokens").state()
    )


def test_files_that_the_last_dataset_has_are_copied_on_the_server(team: Team, bucket: str) -> None:
    project = team.project
    first = upload(project)["url"]
    project.write("new.jsonl", ["document 1 about 1 cats"])  # one that changes no merge
    project.build()
    project.dvc("add", "data/raw")
    commit(project, "More")
    second = upload(project)
    assert second["url"] != first
    assert second["files"]["copied"] == N_SHARDS + 9, "also tables and files of the tokenizer that are equal"
    assert stored_files(second["url"]) == local_files(project)
    assert upload(project)["files"]["sent"] == 0, "a copy keeps the digest of its bytes"


def test_a_killed_upload_goes_on_and_sends_no_finished_file_again(team: Team, bucket: str) -> None:
    project = team.project
    proxy = Proxy(int(bucket.rpartition(":")[2]))
    proxy.mode = "slow"
    running = begun(project, "upload", PLACE, AWS_ENDPOINT_URL=proxy.url)
    deadline = time.monotonic() + PATIENCE_S
    while len(objects.list_objects(PLACE)) < 8:
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.communicate()
    proxy.close()
    time.sleep(1.1)  # a time of an object is in whole seconds
    before = {one.url: one.modified_ns for one in objects.list_objects(PLACE)}
    assert 8 <= len(before) < N_SHARDS and not any(url.endswith("manifest.json") for url in before)
    done = upload(project)
    assert done["files"]["there"] >= len(before) - 1
    after = {one.url: one.modified_ns for one in objects.list_objects(PLACE)}
    assert [url for url, at in before.items() if after[url] != at] == [f"{done['url']}/upload.json"]
    assert stored_files(done["url"]) == local_files(project)


def test_a_file_that_is_another_in_the_place_is_sent_again(team: Team, bucket: str) -> None:
    done = upload(team.project)
    file = f"{done['url']}/tokens/documents/a.jsonl.parquet"
    content = bytearray(objects.get(file))
    content[40] ^= 1
    client().put_object(Bucket="bucket", Key=file.removeprefix("s3://bucket/"), Body=bytes(content))
    objects.delete([f"{done['url']}/tables/documents.parquet"])
    again = upload(team.project)
    assert again["files"]["sent"] == 2
    assert stored_files(done["url"]) == local_files(team.project)


def test_two_uploads_at_once_make_one_whole_dataset(team: Team, built: Team, bucket: str, tmp_path: Path) -> None:
    other = copied(built, tmp_path / "other")
    both = [begun(one.project, "upload", PLACE, "--json") for one in (team, other)]
    urls = []
    for running in both:
        out, err = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0, err
        urls.append(json.loads(out)["result"]["url"])
    assert urls[0] == urls[1]
    assert stored_files(urls[0]) == local_files(team.project)


def test_another_manifest_under_the_same_name_is_refused(team: Team, bucket: str) -> None:
    done = upload(team.project)
    objects.delete([f"{done['url']}/tokens/manifest.json"])
    assert objects.put_new(f"{done['url']}/tokens/manifest.json", b"{}")
    said = cli(team.project, "upload", PLACE)
    assert said.returncode == 2 and "differs from the manifest of this dataset" in said.stderr
    assert objects.get(f"{done['url']}/tokens/manifest.json") == b"{}"


def test_what_is_not_committed_or_not_built_is_refused(team: Team, bucket: str) -> None:
    project = team.project
    (project.root / "new.txt").write_text("x")
    assert "not committed: new.txt" in cli(project, "upload", PLACE).stderr
    (project.root / "new.txt").unlink()
    project.write("new.jsonl", ["one more"])
    project.dvc("add", "data/raw")
    commit(project, "More")
    said = cli(project, "upload", PLACE)
    assert said.returncode == 2 and "stage count is stale" in said.stderr
    assert objects.list_objects("s3://bucket") == []


def test_a_damaged_file_is_not_uploaded(team: Team, bucket: str) -> None:
    path = team.project.root / "data/tables/documents.parquet"
    content = path.read_bytes()
    facts = path.stat()
    path.unlink()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    said = cli(team.project, "upload", PLACE)
    assert said.returncode == 2, said.stderr
    assert not any(one.url.endswith("manifest.json") for one in objects.list_objects("s3://bucket"))


def test_a_dataset_that_dvc_does_not_cache_is_uploaded(team: Team, bucket: str) -> None:
    project = team.project
    with project.edited("dvc.yaml") as pipeline:
        outs = pipeline["stages"]["encode"]["outs"]
        pipeline["stages"]["encode"]["outs"] = [
            {one: {"cache": False}} if one == "data/tokens" else one for one in outs
        ]
    shutil.rmtree(project.root / ".dvc/cache")
    project.build()
    commit(project, "Do not cache the tokens")
    assert cli(project, "status").returncode == 0
    said = cli(project, "publish", "dataset@v1.0.0")
    assert said.returncode == 2 and "Share it with `tokenmill upload`" in said.stderr
    done = upload(project)
    assert stored_files(done["url"]) == local_files(project)
    md5 = md5_file(project.root / "data/tokens/documents/a.jsonl.parquet")
    assert not (project.root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]).exists()


def test_a_folder_is_a_place_too(team: Team, tmp_path: Path) -> None:
    for place in (str(tmp_path / "place"), f"file://{tmp_path}/place2"):
        done = upload(team.project, place)
        folder = Path(done["url"])
        assert folder.parent == tmp_path / Path(place).name
        found = {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
        assert found.pop("upload.json")
        assert found == local_files(team.project)
        assert read_alike(f"file://{folder}", tmp_path / "cache", team.project)


def test_what_a_killed_upload_leaves_in_a_folder_is_removed_after_a_day(team: Team, tmp_path: Path) -> None:
    place = tmp_path / "place"
    running = begun(team.project, "upload", str(place))
    deadline = time.monotonic() + PATIENCE_S
    while not any(place.rglob("*.parquet")):
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
    running.send_signal(signal.SIGKILL)
    running.communicate()
    folder = next(place.iterdir())
    (folder / "tokens/documents").mkdir(parents=True, exist_ok=True)
    (folder / f"tokens/documents/a.jsonl.parquet.{running.pid}-1.partial").write_bytes(b"x")
    for path in folder.rglob("*.partial"):
        os.utime(path, (time.time() - 2 * 86_400,) * 2)
    living = folder / "tokens/documents/b.jsonl.parquet.1-1.partial"  # of a process on another machine
    living.write_bytes(b"x")
    done = upload(team.project, str(place))
    assert list(folder.rglob("*.partial")) == [living]
    living.unlink()
    names = {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}
    assert done["url"] == str(folder) and names == {*local_files(team.project), "upload.json"}


def test_a_short_outage_is_waited_for(team: Team, bucket: str) -> None:
    project = team.project
    proxy = Proxy(int(bucket.rpartition(":")[2]))
    proxy.mode = "slow"
    running = begun(project, "upload", PLACE, AWS_ENDPOINT_URL=proxy.url)
    deadline = time.monotonic() + PATIENCE_S
    while len(objects.list_objects(PLACE)) < 4:
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
        time.sleep(0.01)
    proxy.mode = "refuse"
    time.sleep(8)
    proxy.mode = "open"
    out, err = running.communicate(timeout=PATIENCE_S)
    proxy.close()
    assert running.returncode == 0, err
    assert proxy.n_hit > 0
    assert stored_files(out.strip()) == local_files(project)


def test_ctrl_c_ends_a_transfer_in_the_middle_of_a_file(s3: str, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(40 << 20))
    ended, parts = Event(), []

    def on_part(n_bytes: int) -> None:
        anywhere.go_on(ended)
        parts.append(n_bytes)
        ended.set()

    with pytest.raises(anywhere.Ended):
        anywhere.put_file(tmp_path / "large", "s3://bucket/large", "00", on_part)
    assert parts == [16 << 20]
    assert objects.head("s3://bucket/large") is None
    assert "Uploads" not in client().list_multipart_uploads(Bucket="bucket"), "the parts are removed"
    anywhere.put_file(tmp_path / "large", "s3://bucket/large", "00")
    found = objects.head("s3://bucket/large")
    assert found is not None and anywhere.sha256_of(found.url) == "00"
    with pytest.raises(anywhere.Ended):
        anywhere.fetch(found, tmp_path / "fetched", ended)
    with pytest.raises(anywhere.Ended):
        anywhere.put_file(tmp_path / "large", str(tmp_path / "copy"), "00", on_part)
    assert not list(tmp_path.glob("copy*"))


def test_an_outage_is_an_error_that_says_what_to_do(team: Team, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = cli(team.project, "upload", f"s3://{KEY}:{SECRET}@bucket/sets")
    assert said.returncode == 2 and "has a password, a token or a query" in said.stderr and SECRET not in said.stderr
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    said = cli(team.project, "upload", PLACE)
    assert said.returncode == 2 and "run the command again" in said.stderr
    assert SECRET not in said.stderr
