"""Documents in object storage: every stage and command does with them what it does with files."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders.builds import build_while
from tests.builders.cloud_servers import cloud
from tests.builders.corpora import KINDS, read_corpus, write_corpus
from tests.builders.proxy import Mode, Proxy
from tests.builders.s3_server import SECRET, client, environment, moto, s3s
from tests.conftest import Project, make_project
from tokenmill.dataset.manifest import read_manifest
from tokenmill.storage import objects
from tokenmill.storage.urls import StoredObject

pytestmark = pytest.mark.slow


def put_all(folder: Path, prefix: str) -> None:
    s3 = client()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        key = f"{prefix}/{path.relative_to(folder).as_posix()}"
        s3.put_object(Bucket="bucket", Key=key, Body=path.read_bytes())


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture
def s3(moto_url: str, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with environment(moto_url, tmp_path) as patch:
        s3 = client(moto_url)
        s3.create_bucket(Bucket="bucket")
        yield patch
        for one in s3.list_objects_v2(Bucket="bucket").get("Contents", ()):
            s3.delete_object(Bucket="bucket", Key=one["Key"])
        s3.delete_bucket(Bucket="bucket")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A build of the corpus from files."""
    project = make_project(tmp_path_factory.mktemp("local") / "project")
    shutil.rmtree(project.root / "data/raw")
    write_corpus(project.root / "data/raw")
    read_corpus(project, "data/raw/**/*", ["data/raw"])
    project.build()
    return project


def remote(tmp_path: Path, glob: str | list[str] = "s3://bucket/data/raw/**/*") -> Project:
    project = make_project(tmp_path / "remote")
    shutil.rmtree(project.root / "data/raw")
    read_corpus(project, glob, ["data/objects.json"])
    return project


def digests(project: Project) -> dict[str, str]:
    return {shard.name: shard.sha256 for shard in read_manifest(project.root / "data/tokens").shards}


def check_same(project: Project, local: Project, bucket: str = "s3://bucket") -> None:
    assert digests(project) == digests(local)
    inputs = read_manifest(project.root / "data/tokens").inputs
    assert {one.name: one.sha256 for one in inputs} == {
        f"{bucket}/{one.name}": one.sha256 for one in read_manifest(local.root / "data/tokens").inputs
    }
    for name in ("data/counts/counts.parquet", "data/tokenizer/tokenizer.json"):
        assert (project.root / name).read_bytes() == (local.root / name).read_bytes()


def test_a_build_from_objects_has_the_bytes_of_one_from_files(
    s3: pytest.MonkeyPatch, local: Project, tmp_path: Path
) -> None:
    put_all(local.root / "data/raw", "data/raw")
    project = remote(tmp_path)
    assert project.cli("status").returncode == 1
    project.build()
    check_same(project, local)
    assert set(project.actions(project.build()).values()) == {"up to date"}
    assert project.cli("status").returncode == 0
    assert project.cli("verify").returncode == 0
    assert project.cli("plan").returncode == 0
    found = project.cli("locate", "--id", "web/a.jsonl-7")
    assert found.returncode == 0 and "s3://bucket/data/raw/web/a.jsonl" in found.stdout
    doctor = project.cli("doctor")
    assert f"{len(KINDS)} files" in doctor.stdout, doctor.stdout
    for path in project.root.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_from_a_server_in_rust_too(local: Project, tmp_path: Path) -> None:
    (tmp_path / "s3s").mkdir()
    with s3s(tmp_path / "s3s") as url, environment(url, tmp_path):
        client().create_bucket(Bucket="bucket")
        put_all(local.root / "data/raw", "data/raw")
        project = remote(tmp_path)
        project.build()
        check_same(project, local)


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_from_google_and_azure_too(scheme: str, local: Project, tmp_path: Path) -> None:
    with cloud(scheme, tmp_path) as (server, _):
        raw = local.root / "data/raw"
        for path in sorted(path for path in raw.rglob("*") if path.is_file()):
            server.put(f"data/raw/{path.relative_to(raw).as_posix()}", path.read_bytes())
        project = remote(tmp_path, f"{scheme}://bucket/data/raw/**/*")
        project.build()
        check_same(project, local, f"{scheme}://bucket")
        assert set(project.actions(project.build()).values()) == {"up to date"}
        assert project.cli("verify").returncode == 0
        server.put("data/raw/web/new.jsonl", b'{"id": "new", "text": "another document"}\n')
        assert "1 new" in project.cli("status").stdout
        project.build()
        assert len(digests(project)) == len(digests(local)) + 1


def test_changes_in_the_bucket_are_seen(s3: pytest.MonkeyPatch, local: Project, tmp_path: Path) -> None:
    put_all(local.root / "data/raw", "data/raw")
    project = remote(tmp_path)
    project.build()
    listed = (project.root / "data/objects.json").read_bytes()
    client().put_object(Bucket="bucket", Key="data/raw/web/new.jsonl", Body=b'{"id": "n", "text": "the new cat"}\n')
    client().delete_object(Bucket="bucket", Key="data/raw/books/f.txt")
    said = project.cli("status")
    assert said.returncode == 1 and "1 new, 1 removed" in said.stdout, said.stdout
    assert (project.root / "data/objects.json").read_bytes() == listed, "status only looks"
    assert project.cli("verify").returncode != 0
    actions = project.actions(project.build())
    assert actions["count"] == actions["encode"] == "run"
    names = [one["url"] for one in json.loads((project.root / "data/objects.json").read_bytes())]
    assert names == sorted(names) and "s3://bucket/data/raw/web/new.jsonl" in names
    assert "documents/web/new.jsonl.parquet" in digests(project)
    # The same content again: its e-tag is that of before, so nothing is done.
    put_all(local.root / "data/raw/web", "data/raw/web")
    assert set(project.actions(project.build()).values()) == {"up to date"}


def test_an_object_that_arrives_in_mid_build_is_read_by_the_next(
    s3: pytest.MonkeyPatch, local: Project, tmp_path: Path
) -> None:
    put_all(local.root / "data/raw", "data/raw")
    project = remote(tmp_path)
    late = b'{"id": "late", "text": "the late cat"}\n'

    def arrive(moment: str) -> None:
        if moment != "before count":  # objects are listed when the first stage begins
            client().put_object(Bucket="bucket", Key=f"data/raw/{moment.replace(' ', '-')}.jsonl", Body=late)

    build_while(project, arrive)
    check_same(project, local)
    assert "in-count.jsonl" not in (project.root / "data/objects.json").read_text(encoding="utf-8")
    assert project.actions(project.build())["count"] == "run"
    names = [one.name for one in read_manifest(project.root / "data/tokens").inputs]
    assert {"s3://bucket/data/raw/in-count.jsonl", "s3://bucket/data/raw/in-validate.jsonl"} <= set(names)


def test_files_and_objects_mix(s3: pytest.MonkeyPatch, local: Project, tmp_path: Path) -> None:
    put_all(local.root / "data/raw/web", "data/raw/web")
    glob = ["s3://bucket/data/raw/web/*", f"file://{local.root}/data/raw/books/*"]
    project = remote(tmp_path, glob)
    read_corpus(project, glob, ["data/objects.json", str(local.root / "data/raw/books")])
    project.build()
    assert project.cli("verify").returncode == 0
    names = [one.name for one in read_manifest(project.root / "data/tokens").inputs]
    assert sum(name.startswith("s3://") for name in names) == 4 and len(names) == len(KINDS)


def test_a_list_that_dvc_does_not_see_is_refused(s3: pytest.MonkeyPatch, local: Project, tmp_path: Path) -> None:
    put_all(local.root / "data/raw/web", "data/raw/web")
    project = remote(tmp_path)
    read_corpus(project, "s3://bucket/data/raw/**/*", [])
    for command in ("build", "status"):
        said = project.cli(command)
        assert said.returncode == 2 and "TM107" in said.stderr and "Put data/objects.json into the deps" in said.stderr


def test_globs_match_as_they_match_files(s3: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tokenmill.corpus.shards import find_shards
    from tokenmill.errors import CorpusError

    keys = [
        "p/a.jsonl", "p/sub/b.jsonl", "p/sub/deep/c.txt", "p/.hidden/d.jsonl", "p/.e.jsonl", "p/sub/f.jsonl.partial",
        "p/[x].txt", "p/sub/g h.txt", "pq/i.jsonl",
    ]  # fmt: skip
    for key in keys:
        client().put_object(Bucket="bucket", Key=key, Body=b"x")
        path = tmp_path / "files" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    client().put_object(Bucket="bucket", Key="p/sub/", Body=b"")
    client().put_object(Bucket="bucket", Key="p/_SUCCESS", Body=b"")
    for glob in (
        "p/**/*", "p/*", "p/**", "p/*/*", "**/*.jsonl", "p/sub/b.jsonl", "p/**/deep/*", "p*/*.jsonl", "p/[a-c].jsonl",
        "p/.hidden/*", "p/[[]x].txt", "p/?.jsonl", "**/sub/**/*.txt", "p/**/**/b.jsonl", "p/none/*", "p/sub", "p/.*",
    ):  # fmt: skip
        found = []
        for asked in (f"{tmp_path}/files/{glob}", f"s3://bucket/{glob}"):
            try:
                shards = find_shards(tmp_path, asked)
                found.append(
                    [
                        shard.name.split("/files/")[-1].removeprefix("s3://bucket/").removeprefix("files/")
                        for shard in shards
                    ]
                )
            except CorpusError as error:
                found.append([error.code])
        assert found[0] == found[1], glob


def test_a_build_through_outages_has_the_same_bytes(
    s3: pytest.MonkeyPatch, moto_url: str, local: Project, tmp_path: Path
) -> None:
    put_all(local.root / "data/raw", "data/raw")
    proxy = Proxy(int(moto_url.rpartition(":")[2]))
    s3.setenv("AWS_ENDPOINT_URL", proxy.url)
    project = remote(tmp_path)
    over = threading.Event()

    def disturb() -> None:
        modes: tuple[Mode, ...] = ("cut", "open", "refuse", "slow", "stall", "open")
        for mode in modes:
            proxy.mode = mode
            over.wait(1.5)

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    for _ in range(5):  # an outage may be longer than a build waits
        said = project.cli("build")
        if said.returncode == 0:
            break
        assert said.returncode == 2 and "TM204" in said.stderr and "cannot be reached now" in said.stderr, said.stderr
    over.set()
    disturbing.join()
    proxy.close()
    check_same(project, local)


def test_a_storage_that_is_away_for_half_a_minute_is_waited_for(
    s3: pytest.MonkeyPatch, moto_url: str, local: Project, tmp_path: Path
) -> None:
    put_all(local.root / "data/raw", "data/raw")
    proxy = Proxy(int(moto_url.rpartition(":")[2]))
    s3.setenv("AWS_ENDPOINT_URL", proxy.url)
    project = remote(tmp_path)
    project.build("--only", "count")
    proxy.mode = "refuse"
    back = threading.Timer(30, lambda: setattr(proxy, "mode", "open"))
    back.start()
    said = project.cli("build")
    back.join()
    proxy.close()
    assert said.returncode == 0 and said.stderr.count("cannot be reached now") == 1, said.stderr
    check_same(project, local)


def test_an_object_that_goes_away_or_changes_in_mid_build_is_named(
    s3: pytest.MonkeyPatch, local: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_all(local.root / "data/raw", "data/raw")
    project = remote(tmp_path)
    project.build("--only", "count")
    get_range, key = objects.get_range, "data/raw/books/d.parquet"

    def change_it() -> None:
        client().put_object(Bucket="bucket", Key=key, Body=b"PAR1 another PAR1")

    def delete_it() -> None:
        client().delete_object(Bucket="bucket", Key=key)

    for do, words in ((change_it, "changed after it was listed"), (delete_it, "is not there any more")):
        put_all(local.root / "data/raw/books", "data/raw/books")
        todo = [do]

        def get(stored: StoredObject, start: int, stop: int, todo: list[Callable[[], None]] = todo) -> memoryview:
            if todo and stored.url.endswith(key):
                todo.pop()()
            return get_range(stored, start, stop)

        monkeypatch.setattr(objects, "get_range", get)
        said = project.cli("build", "--only", "count", "--force")
        assert said.returncode == 2 and f"s3://bucket/{key}: {words}" in said.stderr, said.stderr
        assert not todo
    monkeypatch.undo()
    put_all(local.root / "data/raw", "data/raw")
    project.build()
    check_same(project, local)


def error_of(project: Project) -> str:
    said = project.cli("build")
    assert said.returncode == 2, said.stderr
    assert SECRET not in said.stdout + said.stderr and "Traceback" not in said.stderr
    return said.stderr


def test_errors_of_a_build_say_what_to_do(s3: pytest.MonkeyPatch, local: Project, tmp_path: Path) -> None:
    client().put_object(Bucket="bucket", Key="data/raw/web/x.jsonl.gz", Body=b"no gzip")
    assert "s3://bucket/data/raw/web/x.jsonl.gz: the file is damaged" in error_of(remote(tmp_path))
    (tmp_path / "2").mkdir()
    project = remote(tmp_path / "2")
    project.set(source__glob="s3://bucket/none/**/*")
    assert "found none: there is nothing below s3://bucket/none/" in error_of(project)
    project.set(source__glob="s3://no-such-bucket/**/*")
    assert "s3://no-such-bucket: there is no such bucket" in error_of(project)
    project.set(source__glob="ftp://host/**/*")
    assert "expected a URL that begins with s3://" in error_of(project)
    s3.delenv("AWS_ACCESS_KEY_ID")
    project.set(source__glob="s3://bucket/**/*")
    assert "only one is set" in error_of(project)
    s3.delenv("AWS_SECRET_ACCESS_KEY")
    assert "no credentials were found" in error_of(project)
