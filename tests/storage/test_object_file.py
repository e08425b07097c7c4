"""An object read as a file: from anywhere, in bounded memory, through outages, and never mixed with another content."""

import hashlib
import io
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.proxy import Proxy
from tests.builders.s3_server import client, environment, moto
from tokenmill.errors import CorpusError, PassingError
from tokenmill.storage import objects, retries
from tokenmill.storage.object_file import BLOCK_BYTES, ObjectFile
from tokenmill.storage.urls import StoredObject

CONTENT = random.Random(0).randbytes(9 * BLOCK_BYTES + 12_345)


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture
def s3(moto_url: str, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with environment(moto_url, tmp_path) as patch:
        s3 = client(moto_url)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="p/object", Body=CONTENT)
        yield patch


@pytest.fixture
def proxy(s3: pytest.MonkeyPatch, moto_url: str) -> Iterator[Proxy]:
    """Between the client and the server."""
    made = Proxy(int(moto_url.rpartition(":")[2]))
    s3.setenv("AWS_ENDPOINT_URL", made.url)
    yield made
    made.close()


def listed(key: str = "p/object") -> StoredObject:
    [found] = [one for one in objects.list_objects("s3://bucket/p") if one.url.endswith(key)]
    return found


def test_reads_are_those_of_a_file(s3: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    file, expected = io.BufferedReader(ObjectFile(listed())), io.BytesIO(CONTENT)
    for _ in range(200):
        if chance.random() < 0.4:
            where = chance.randrange(len(CONTENT) + 100)
            assert file.seek(where) == expected.seek(where)
        n = chance.choice([0, 1, 100, 70_000, BLOCK_BYTES, 3 * BLOCK_BYTES])
        assert file.read(n) == expected.read(n)
        assert file.tell() == expected.tell()
        assert file.readline() == expected.readline()
    assert file.seek(-5, io.SEEK_END) == expected.seek(-5, io.SEEK_END)
    assert file.read() == CONTENT[-5:]
    assert ObjectFile(listed()).read() == CONTENT


def test_few_blocks_are_held_and_none_behind_the_stop(s3: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    get_range = objects.get_range

    def get(stored: StoredObject, start: int, stop: int) -> memoryview:
        asked.append(start // BLOCK_BYTES)
        return get_range(stored, start, stop)

    monkeypatch.setattr(objects, "get_range", get)
    file = ObjectFile(listed(), stop=4 * BLOCK_BYTES)
    file.read(10)
    while file.tell() < 4 * BLOCK_BYTES:
        file.read(100_000)
        assert len(file._blocks) <= 10
    file.close()
    time.sleep(0.2)
    assert sorted(asked) == [0, 1, 2, 3, 4], "the last read goes beyond the stop; no block behind it is asked for"


def test_one_column_of_one_row_group_is_not_the_whole_file(s3: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chance = random.Random(2)
    rows = [{"a": chance.randbytes(40_000), "b": chance.randbytes(200)} for _ in range(1000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "f.parquet", row_group_size=250, compression="none")
    s3_client = client()
    s3_client.put_object(Bucket="bucket", Key="p/f.parquet", Body=(tmp_path / "f.parquet").read_bytes())
    raw = ObjectFile(listed("f.parquet"))
    with pq.ParquetFile(pa.PythonFile(raw, mode="r"), pre_buffer=False, buffer_size=1 << 19) as file:
        found = file.read_row_group(2, columns=["b"], use_threads=False).column("b").to_pylist()
        assert found == [row["b"] for row in rows[500:750]]
        assert len(raw._blocks) <= 6, "of 20"


def test_an_error_of_a_read_comes_through_pyarrow(s3: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = pa.table({"text": ["x" * 1000] * 9000})
    pq.write_table(table, tmp_path / "f.parquet", compression="none", use_dictionary=False)
    (tmp_path / "f.jsonl.gz").write_bytes(b"")
    client().put_object(Bucket="bucket", Key="p/g.parquet", Body=(tmp_path / "f.parquet").read_bytes())
    stored = listed("g.parquet")
    client().delete_object(Bucket="bucket", Key="p/g.parquet")
    for read in (
        lambda file: pq.ParquetFile(file),
        lambda file: pa.ipc.open_file(file),
        lambda file: pa.CompressedInputStream(file, "gzip").read(10),
        lambda file: file.read(10),
    ):
        with pytest.raises(CorpusError, match="is not there any more"):
            read(pa.PythonFile(ObjectFile(stored), mode="r"))


def test_an_object_that_changes_while_it_is_read_is_an_error(s3: pytest.MonkeyPatch) -> None:
    file = ObjectFile(listed())
    assert file.read(10) == CONTENT[:10]
    client().put_object(Bucket="bucket", Key="p/object", Body=CONTENT[::-1])
    with pytest.raises(CorpusError, match="changed after it was listed"):
        file.seek(8 * BLOCK_BYTES)
        file.read(BLOCK_BYTES)


def digest_through(proxy: Proxy) -> str:
    digest = hashlib.sha256()
    with ObjectFile(listed()) as file:
        while block := file.read(300_000):
            digest.update(block)
    return digest.hexdigest()


@pytest.mark.parametrize("mode", ["refuse", "cut", "slow"])
@pytest.mark.slow
def test_an_outage_of_some_seconds_changes_no_byte(proxy: Proxy, mode: str) -> None:
    stored = listed()
    digest = hashlib.sha256()
    with ObjectFile(stored) as file:
        digest.update(file.read(100))
        proxy.mode = mode  # type: ignore[assignment]
        threading.Timer(6, lambda: setattr(proxy, "mode", "open")).start()
        while block := file.read(300_000):
            digest.update(block)
    assert digest.hexdigest() == hashlib.sha256(CONTENT).hexdigest()
    assert proxy.n_hit or mode == "slow"


@pytest.mark.slow
def test_a_stalled_connection_is_given_up_and_asked_again(proxy: Proxy) -> None:
    with ObjectFile(listed()) as file:
        assert file.read(100) == CONTENT[:100]
        time.sleep(0.5)
        proxy.mode = "stall"
        threading.Timer(25, lambda: setattr(proxy, "mode", "open")).start()
        assert file.read() == CONTENT[100:]


@pytest.mark.slow
def test_a_storage_that_stays_away_is_a_passing_error(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PATIENCE_S", 2.0)
    with ObjectFile(listed()) as file:
        proxy.mode = "refuse"
        file.seek(8 * BLOCK_BYTES)
        with pytest.raises(PassingError, match="cannot be reached now"):
            file.read(100)
        proxy.mode = "open"
        assert file.read(100) == CONTENT[8 * BLOCK_BYTES : 8 * BLOCK_BYTES + 100], "the same file goes on"
