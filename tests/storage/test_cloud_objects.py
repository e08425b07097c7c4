"""Objects in Google Cloud Storage and in Azure, on servers that answer as these do; and each error in our words."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.cloud_servers import Server, cloud
from tokenmill.errors import CorpusError, StorageError
from tokenmill.storage import objects

ODD_KEYS = ("p/a b.jsonl", "p/é%20.jsonl", "p/x+y#?.jsonl", "p/[x].jsonl", "p/.h/x.jsonl")


@pytest.fixture(params=["gs", "az"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Server, pytest.MonkeyPatch]]:
    """The URL of an empty bucket, its server, and the environment."""
    with cloud(request.param, tmp_path) as (server, patch):
        yield f"{request.param}://bucket", server, patch


Place = tuple[str, Server, pytest.MonkeyPatch]


def test_objects_are_listed_page_by_page_and_read_as_they_were_listed(place: Place) -> None:
    bucket, server, _ = place
    for key in (*ODD_KEYS, "pq/other"):
        server.put(key, key.encode())
    found = {one.url: one for one in objects.list_objects(f"{bucket}/p")}
    assert sorted(found) == sorted(f"{bucket}/{key}" for key in ODD_KEYS)
    assert objects.list_folders(bucket) == ["p", "pq"]
    for key in ODD_KEYS:
        one = found[f"{bucket}/{key}"]
        head = objects.head(one.url)
        assert head is not None and (head.n_bytes, head.e_tag) == (one.n_bytes, one.e_tag) == (
            len(key.encode()),
            one.e_tag,
        )
        assert bytes(objects.get_range(one, 1, one.n_bytes)) == key.encode()[1:]
    server.put("p/a b.jsonl", b"other bytes")
    with pytest.raises(CorpusError, match="changed after it was listed"):
        objects.get_range(found[f"{bucket}/p/a b.jsonl"], 0, 5)
    del server.objects["p/a b.jsonl"]
    with pytest.raises(CorpusError, match="is not there any more"):
        objects.get_range(found[f"{bucket}/p/a b.jsonl"], 0, 5)


def test_a_large_file_goes_in_parts_with_metadata(place: Place, tmp_path: Path) -> None:
    bucket, server, _ = place
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * (140 << 10))  # 35 MiB, more than two parts
    objects.put_file(path, f"{bucket}/large", {"sha256": "ab" * 32})
    assert server.objects["large"].content == path.read_bytes()
    assert objects.metadata(f"{bucket}/large")["sha256"] == "ab" * 32
    objects.copy(f"{bucket}/large", f"{bucket}/b/c")
    assert objects.metadata(f"{bucket}/b/c")["sha256"] == "ab" * 32


def test_a_new_object_is_written_once_and_deleted_with_others_that_are_not_there(place: Place) -> None:
    bucket, server, _ = place
    assert objects.put_new(f"{bucket}/new", b"first")
    assert not objects.put_new(f"{bucket}/new", b"second")
    assert objects.get(f"{bucket}/new") == b"first"
    server.put("more", b"")
    objects.delete([f"{bucket}/none", f"{bucket}/new", f"{bucket}/nor this", f"{bucket}/more"])
    assert not server.objects
    assert objects.head(f"{bucket}/new") is None


def message(url: str) -> str:
    with pytest.raises(StorageError) as caught:
        objects.list_objects(url)
    return str(caught.value)


def test_a_missing_bucket_and_an_endpoint_without_tls_are_named(place: Place) -> None:
    bucket, _, patch = place
    scheme = bucket[:2]
    assert f"{scheme}://no-such: there is no such bucket." in message(f"{scheme}://no-such/p")
    variable = {"gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}[scheme]
    patch.delenv(variable)
    assert (
        f"has no TLS, so others on the network can read the data. Name an https:// endpoint, or set {variable}=true."
        in message(bucket)
    )


@pytest.mark.parametrize(
    "content",
    [
        None,
        "x",
        json.dumps({"type": "external_account"}),
        json.dumps({"type": "service_account", "client_email": "a", "private_key": "no key", "private_key_id": "b"}),
    ],
    ids=["missing", "no JSON", "another kind", "no key"],
)
def test_a_file_of_google_credentials_that_cannot_be_used(
    content: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "key.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"):
        with monkeypatch.context() as patch:
            patch.setenv(name, f"{path}")
            found = message("gs://bucket/p")
        assert "the file of Google's credentials on" in found and name in found
        assert "service_account and authorized_user" in found


def test_azure_settings_that_are_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no storage account is named. Set AZURE_STORAGE_ACCOUNT_NAME." in message("az://bucket/p")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    for name in ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "no secret of theirs!")
            found = message("az://bucket/p")
        assert "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN is not written as Azure gives it." in found
        assert "no secret" not in found
