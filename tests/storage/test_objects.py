"""Objects in object storage, on a real server: listed, read, written, copied, deleted; and each error in our words."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builders.s3_server import KEY, SECRET, client, environment, free_port, moto, moto_one_at_a_time, s3s
from tokenmill.errors import CorpusError, PassingError, StorageError, TokenmillError
from tokenmill.storage import objects
from tokenmill_reader.urls import is_url, local_path, place

ODD_KEYS = ("p/a b.jsonl", "p/é%20.jsonl", "p/x+y#?.jsonl", "p/[x].jsonl", "p/.h/x.jsonl")


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture(scope="module")
def s3s_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3s(tmp_path_factory.mktemp("s3s")) as url:
        yield url


@pytest.fixture
def s3(moto_url: str, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    yield from _with_bucket(moto_url, tmp_path)


@pytest.fixture(params=["moto", "s3s"])
def each_s3(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    yield from _with_bucket(request.getfixturevalue(f"{request.param}_url"), tmp_path)


def _with_bucket(url: str, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with environment(url, tmp_path) as patch:
        s3 = client(url)
        s3.create_bucket(Bucket="bucket")
        yield patch
        for one in s3.list_objects_v2(Bucket="bucket").get("Contents", ()):
            s3.delete_object(Bucket="bucket", Key=one["Key"])
        s3.delete_bucket(Bucket="bucket")


def test_keys_of_any_letters_are_listed_and_read(each_s3: pytest.MonkeyPatch) -> None:
    for key in ODD_KEYS:
        client().put_object(Bucket="bucket", Key=key, Body=key.encode())
    found = {one.url: one for one in objects.list_objects("s3://bucket/p")}
    assert sorted(found) == sorted(f"s3://bucket/{key}" for key in ODD_KEYS)
    for key in ODD_KEYS:
        content = key.encode()
        one = found[f"s3://bucket/{key}"]
        assert one.n_bytes == len(content)
        head = objects.head(one.url)
        assert head is not None and (head.url, head.n_bytes) == (one.url, one.n_bytes)
        assert bytes(objects.get_range(one, 1, len(content))) == content[1:]
        assert objects.get(one.url) == content


def test_a_folder_is_listed_without_its_siblings(each_s3: pytest.MonkeyPatch) -> None:
    for key in ("p/a.txt", "pq/b.txt", "other"):
        client().put_object(Bucket="bucket", Key=key, Body=b"x")
    assert [one.url for one in objects.list_objects("s3://bucket/p")] == ["s3://bucket/p/a.txt"]
    assert len(objects.list_objects("s3://bucket")) == 3
    assert objects.list_folders("s3://bucket") == ["p", "pq"]
    assert objects.list_folders("s3://bucket/p") == []


def test_folders_are_found_between_many_objects_of_each(each_s3: pytest.MonkeyPatch) -> None:
    """A folder of more keys than obstore gives at once, names that begin alike, and objects beside the folders."""
    put = client().put_object
    names = ["a", "a b", "a-b", "a.b", "a0", "b", "\u00e9", "\U0001f600"]
    for name in names:
        for i in range(60 if name == "a b" else 1):
            put(Bucket="bucket", Key=f"q/{name}/{i:02}/x.txt", Body=b"x")
    for key in ("q/a!", "q/a/", "q/a0.txt", "q/z", "qq/a/x"):
        put(Bucket="bucket", Key=key, Body=b"x")
    assert objects.list_folders("s3://bucket/q") == sorted(names)


def test_a_listing_that_goes_on_and_on_ends(each_s3: pytest.MonkeyPatch) -> None:
    each_s3.setattr("tokenmill.storage.urls.N_LISTED_MAX", 2)
    for key in ("p/a.txt", "p/b.txt", "p/c/d.txt"):
        client().put_object(Bucket="bucket", Key=key, Body=b"x")
    assert len(objects.list_objects("s3://bucket/p/c")) == 1
    each_s3.setattr("tokenmill.storage.urls.N_LISTED_MAX", 1)
    with pytest.raises(StorageError, match="has more than 1 files below it"):
        objects.list_folders("s3://bucket/p")
    each_s3.setattr("tokenmill.storage.urls.N_LISTED_MAX", 2)
    with pytest.raises(StorageError, match="s3://bucket/p: has more than 2 files below it"):
        objects.list_objects("s3://bucket/p")


def test_a_large_file_goes_in_parts_with_metadata(each_s3: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * (140 << 10))  # 35 MiB, more than two parts
    objects.put_file(path, "s3://bucket/large", {"sha256": "ab" * 32})
    found = objects.head("s3://bucket/large")
    assert found is not None and found.n_bytes == path.stat().st_size
    assert objects.metadata("s3://bucket/large")["sha256"] == "ab" * 32
    assert bytes(objects.get_range(found, 20 << 20, found.n_bytes)) == path.read_bytes()[20 << 20 :]


def test_of_writers_of_a_new_object_one_wins(tmp_path: Path) -> None:
    won = []
    threads = [
        threading.Thread(target=lambda i=i: objects.put_new("s3://bucket/new", b"%d" % i) and won.append(i))
        for i in range(4)
    ]
    with moto_one_at_a_time() as url, contextmanager(_with_bucket)(url, tmp_path):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert objects.get("s3://bucket/new") == b"%d" % won[0]


def test_an_object_that_is_there_is_not_written_as_a_new_one(each_s3: pytest.MonkeyPatch) -> None:
    assert objects.put_new("s3://bucket/new", b"first")
    assert not objects.put_new("s3://bucket/new", b"second")
    assert objects.get("s3://bucket/new") == b"first"


def test_copies_and_deletes(each_s3: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    objects.put_file(tmp_path / "file", "s3://bucket/a", {"sha256": "00"})
    objects.copy("s3://bucket/a", "s3://bucket/b/c")
    assert objects.get("s3://bucket/b/c") == b"abc"
    assert objects.metadata("s3://bucket/b/c")["sha256"] == "00"
    objects.delete(["s3://bucket/a", "s3://bucket/none"])
    assert objects.head("s3://bucket/a") is None
    with pytest.raises(CorpusError, match="s3://bucket/a: is not there"):
        objects.get("s3://bucket/a")


def test_an_object_that_changed_since_it_was_listed_is_refused(each_s3: pytest.MonkeyPatch) -> None:
    client().put_object(Bucket="bucket", Key="p/a", Body=b"first")
    [one] = objects.list_objects("s3://bucket/p")
    time.sleep(1.1)  # a server without e-tags in listings is only seen to have changed a second later
    client().put_object(Bucket="bucket", Key="p/a", Body=b"other")
    with pytest.raises(CorpusError, match="s3://bucket/p/a: changed after it was listed"):
        objects.get_range(one, 0, 5)
    client().delete_object(Bucket="bucket", Key="p/a")
    with pytest.raises(CorpusError, match="s3://bucket/p/a: is not there any more"):
        objects.get_range(one, 0, 5)


def error_of(url: str) -> TokenmillError:
    with pytest.raises(TokenmillError) as caught:
        objects.list_objects(url)
    return caught.value


def test_a_missing_bucket(each_s3: pytest.MonkeyPatch) -> None:
    assert "s3://no-such: there is no such bucket." in str(error_of("s3://no-such/p"))


def test_no_credentials(s3: pytest.MonkeyPatch) -> None:
    s3.delenv("AWS_ACCESS_KEY_ID")
    s3.delenv("AWS_SECRET_ACCESS_KEY")
    assert f"s3://bucket: no credentials were found on {socket.gethostname()}. Set AWS_ACCESS_KEY_ID" in str(
        error_of("s3://bucket/p")
    )
    s3.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file.json")
    assert isinstance(error_of("gs://bucket/p"), StorageError)
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        s3.delenv(name, raising=False)
    assert "AZURE_STORAGE_ACCOUNT_NAME" in str(error_of("az://container/p"))


def test_an_endpoint_without_tls_has_to_be_allowed(s3: pytest.MonkeyPatch) -> None:
    s3.delenv("AWS_ALLOW_HTTP")
    s3.setenv("AWS_ENDPOINT_URL", f"http://user:{SECRET}@127.0.0.1:9/")
    error = error_of("s3://bucket/p")
    assert "set AWS_ALLOW_HTTP=true" in str(error) and "http://***@127.0.0.1:9/ " in str(error)
    assert SECRET not in str(error)


def test_a_server_that_does_not_answer_is_a_passing_error(s3: pytest.MonkeyPatch) -> None:
    s3.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    error = error_of("s3://bucket/p")
    assert isinstance(error, PassingError) and "no connection could be made" in str(error)


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        ("403 Forbidden", "AccessDenied", StorageError, "access is denied"),
        ("403 Forbidden", "SignatureDoesNotMatch", StorageError, "does not take the credentials"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", StorageError, "Set AWS_REGION"),
        ("301 Moved Permanently", "PermanentRedirect", StorageError, "Set AWS_REGION"),
        ("503 Slow Down", "SlowDown", PassingError, "cannot be reached now"),
        ("429 Too Many Requests", "TooManyRequests", PassingError, "cannot be reached now"),
        ("418 Teapot", "Teapot", StorageError, "418"),
    ],
)
def test_each_answer_of_a_server_has_its_error(
    s3: pytest.MonkeyPatch, status: str, code: str, kind: type[TokenmillError], words: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_answer, args=(listening, status, code), daemon=True).start()
        s3.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        error = error_of("s3://bucket/p")
        assert isinstance(error, kind) and words in str(error), error
        assert SECRET not in str(error) and KEY not in str(error)
        listening.shutdown(socket.SHUT_RDWR)


def _answer(listening: socket.socket, status: str, code: str) -> None:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Key>{SECRET}</Key></Error>".encode()
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            connection.recv(1 << 16)
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + body)


def test_keys_of_a_named_profile(s3: pytest.MonkeyPatch, moto_url: str, tmp_path: Path) -> None:
    s3.delenv("AWS_ACCESS_KEY_ID")
    s3.delenv("AWS_SECRET_ACCESS_KEY")
    s3.delenv("AWS_ENDPOINT_URL")
    s3.setenv("AWS_PROFILE", "team")
    (tmp_path / "config").write_text(
        f"[profile team]\nregion = us-east-1\nendpoint_url = {moto_url}\n", encoding="utf-8"
    )
    assert "the keys of profile 'team', which AWS_PROFILE names, are of another kind" in str(error_of("s3://bucket/p"))
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n", encoding="utf-8"
    )
    s3.setenv("AWS_REGION", "us-east-1")  # another environment, so another client
    assert objects.list_objects("s3://bucket/p") == []
    (tmp_path / "credentials").write_text(f"[team\n{SECRET}", encoding="utf-8")
    s3.setenv("AWS_REGION", "eu-west-1")
    error = error_of("s3://bucket/p")
    assert "expected a file of profiles" in str(error) and SECRET not in str(error)


def test_urls() -> None:
    assert (
        is_url("s3://b/*") and is_url("S3://b") and is_url("ftp://x/y") and not is_url("a:/b") and not is_url("s3:/b")
    )
    assert place("az://container/a/b/").key == "a/b"
    assert local_path("file:///a/*.txt") == "/a/*.txt"
    for wrong in ("s3//bucket/a", "s3:/bucket/a", "gs:bucket/a"):
        with pytest.raises(StorageError, match=r"expected (s3|gs):// at its begin"):
            local_path(wrong)
    assert local_path("s3/a") == "s3/a"
    for wrong in ("ftp://host/a", "s3:///a", "hf://org/name/x", "s3://key:word@bucket/a", "s3://bucket:9/a"):
        with pytest.raises(StorageError) as caught:
            place(wrong)
        assert "word" not in str(caught.value).replace("password", "")
    with pytest.raises(StorageError):
        local_path("file://host/a")
