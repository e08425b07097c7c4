"""Versions shared through a DVC remote on an S3-compatible server."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from botocore.session import get_session

from tests.builders.teams import Team, cli, commit, identify, make_team, run
from tests.conftest import Project, new_project
from tests.times import PATIENCE_S
from tokenmill.storage.atomic import md5_file, sha256_directory

pytestmark = pytest.mark.slow

BUCKET = "team-store"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server on 127.0.0.1 with one bucket, and the environment in which DVC finds it; what it gives is its URL."""
    empty = tmp_path_factory.mktemp("aws") / "config"
    empty.touch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(empty),
            "AWS_SHARED_CREDENTIALS_FILE": str(empty),
        }.items():
            patch.setenv(name, value)
        command = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not answers(port):
                assert server.poll() is None and time.monotonic() < deadline, "the S3 server did not start"
                time.sleep(0.1)
            client().create_bucket(Bucket=BUCKET)
            yield url
        finally:
            server.kill()
            server.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def client():  # type: ignore[no-untyped-def]  # botocore makes its methods when it runs
    return get_session().create_client("s3")


@pytest.fixture(scope="module")
def team(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A team whose DVC remote is in the bucket, with tokenizer@v1.0.0 published."""
    made = make_team(new_project.__wrapped__(tmp_path_factory.mktemp("s3"))("project"))  # type: ignore[attr-defined]
    config = made.project.root / ".dvc/config"
    config.write_text(
        config.read_text(encoding="utf-8").replace(str(made.store), f"s3://{BUCKET}/dvc"), encoding="utf-8"
    )
    commit(made.project)
    done = cli(made.project, "publish", "tokenizer@v1.0.0", "--stage", "prod")
    assert done.returncode == 0, done.stderr
    return made


def stored(content: bytes) -> str:
    """The key in the bucket of an object with these bytes."""
    s3 = client()
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET)["Contents"]]
    [key] = [key for key in keys if s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content]
    return str(key)


def test_a_version_goes_through_the_bucket(team: Team) -> None:
    other = team.clone("other")
    done = cli(other, "fetch", "tokenizer@prod", "got")
    assert done.returncode == 0, done.stderr
    assert sha256_directory(other.root / "got") == sha256_directory(team.project.root / "data/tokenizer")
    other.dvc("pull")
    assert set(other.actions(cli(other, "build")).values()) == {"up to date"}


def test_a_tokenizer_changed_in_the_bucket_is_refused_by_fetch_and_by_a_build_with_both_digests(
    team: Team, new_project: Callable[[str], Project], tmp_path: Path
) -> None:
    user = new_project("user")
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "v1.0.0"})
    done = cli(user, "build")
    assert done.returncode == 0, done.stderr
    directory = team.project.root / "data/tokenizer"
    right = (directory / "tokenizer.json").read_bytes()
    key = stored(right)
    wrong = bytearray(right)
    wrong[len(wrong) // 2] ^= 1
    client().put_object(Bucket=BUCKET, Key=key, Body=bytes(wrong))
    try:
        (tmp_path / "wrong.json").write_bytes(wrong)
        for done in (
            cli(user, "fetch", "tokenizer@v1.0.0", "--from", str(team.bare), "got"),
            cli(user, "build", "--only", "train-vocab", "--force"),
        ):
            assert done.returncode == 2
            assert "the bytes of this object do not match its name" in done.stderr
            assert f"{md5_file(directory / 'tokenizer.json')}: " in done.stderr
            assert f"found the md5 {md5_file(tmp_path / 'wrong.json')}" in done.stderr
        assert not (user.root / "got").exists()
    finally:
        client().put_object(Bucket=BUCKET, Key=key, Body=right)


def test_a_remote_that_cannot_be_reached_is_told_and_no_tag_set(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    other = team.clone("unreached")
    identify(other.root)
    other.dvc("pull")
    config = other.root / ".dvc/config"
    right = config.read_text(encoding="utf-8")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for changed, env, expected in (
        (right.replace(BUCKET, "no-such-bucket"), {}, "bucket"),
        (right.replace("s3://", "gs://"), {}, "requires 'dvc-gs' to be installed"),
        (right + "# changed\n", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect"),
    ):
        config.write_text(changed, encoding="utf-8")
        run(other.root, "git", "commit", "-q", "-a", "-m", "Another remote")
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            done = cli(other, "publish", "tokenizer@v1.1.0")
            assert done.returncode == 2, done.stderr
            assert "DVC's remote: " in done.stderr
            assert expected in done.stderr
            assert "tokenizer@v1.1.0" not in run(other.root, "git", "tag")
            if env:
                done = cli(other, "fetch", "tokenizer@v1.0.0", "--from", str(team.bare), "got")
                assert done.returncode == 2, done.stderr
                assert "Check that its DVC remote can be reached" in done.stderr
