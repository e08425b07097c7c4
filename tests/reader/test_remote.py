"""Datasets that are read where they lie: fetched once for a machine, checked, kept within a limit, and resumed."""

import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import tokenmill
from tests.builders.document_sets import documents_dataset, shape_of, write_dataset, write_documents, write_index
from tests.builders.document_sets import write_set as set_of
from tests.builders.object_server import ObjectServer, serving
from tests.builders.s3_server import environment
from tests.conftest import REPOSITORY
from tokenmill.config.encode_params import Pack, Shuffle
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import ParamsError, StorageError, ValidationError
from tokenmill_reader.batches import Batches
from tokenmill_reader.cache_folder import FolderLock, make_room
from tokenmill_reader.fetch_process import Visits
from tokenmill_reader.manifest import DatasetFile
from tokenmill_reader.token_dataset import TokenDataset, open_remote
from tokenmill_reader.urls import remote_dataset

N_PARTS, PER_PART, LENGTH = 30, 40, 50
PARTS = [[[i * 1000 + k] * LENGTH for k in range(PER_PART)] for i in range(N_PARTS)]

READ = """
import sys, tokenmill_reader

url, cache, limit, rank, world = sys.argv[1:6]
dataset = tokenmill_reader.open(url, cache=cache, cache_bytes=int(limit) or None)
for ids in dataset.shard(int(rank), int(world)):
    print(ids.item(0), flush=True)
"""


class Stored(NamedTuple):
    """An uploaded dataset. `local`: the same one in a folder. `n_bytes`: of its files of arrow."""

    server: ObjectServer
    url: str
    local: Path
    n_bytes: int

    def name(self, part: int) -> str:
        return f"{self.url.removeprefix('s3://')}/tokens/arrow/part-{part:05}.arrow"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents_dataset(tmp_path_factory.mktemp("local") / "tokens", PARTS, ["arrow", "megatron"])


@contextmanager
def stored_at(folder: Path, local: Path) -> Iterator[Stored]:
    digest = read_manifest(local).digest[:16]
    shutil.copytree(local, folder / "server/bucket" / digest / "tokens")
    n_bytes = sum(path.stat().st_size for path in (local / "arrow").iterdir())
    with serving(folder / "server") as server, environment(server.url, folder):
        yield Stored(server, f"s3://bucket/{digest}", local, n_bytes)


@pytest.fixture
def stored(tmp_path: Path, local: Path) -> Iterator[Stored]:
    with stored_at(tmp_path, local) as one:
        yield one


def same(one: TokenDataset, other: TokenDataset) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _is_of_the_dataset(path: Path) -> bool:
    return path.is_file() and not path.name.startswith("manifest.json") and path.parent.name != ".locks"


def held_bytes(cache: Path) -> int:
    found = 0
    for path in cache.rglob("*"):
        try:
            found += path.stat().st_size if _is_of_the_dataset(path) else 0
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("format", ["arrow", "megatron", "parquet"])
@pytest.mark.parametrize("scheme", ["s3", "http", "file"])
def test_a_remote_dataset_has_the_items_of_the_local_one(
    stored: Stored, scheme: str, format: str, tmp_path: Path
) -> None:
    below = stored.url.removeprefix("s3://")
    urls = {"s3": stored.url, "http": f"{stored.server.url}/{below}", "file": f"file://{stored.server.folder}/{below}"}
    there = tokenmill.open(urls[scheme] + "/", format=format, cache=tmp_path / "cache")
    here = tokenmill.open(stored.local, format=format)
    assert same(there.sequences(70).shuffle(seed=1, block=4), here.sequences(70).shuffle(seed=1, block=4))
    assert there.state() == here.state() and there.labels(77).tolist() == here.labels(77).tolist()
    if scheme == "file":  # without a cache, where it lies
        assert same(tokenmill.open(urls[scheme], format=format), here)


def test_an_index_is_fetched_too(tmp_path: Path) -> None:
    local = tmp_path / "tokens"
    local.mkdir()
    shape = shape_of(60_000)
    index = write_index(local, [[[(0, 1, 0, 2), (1, 0, 0, 1)], [(1, 1, 0, 2)]]], shape)
    documents = [[[1, 2], [3, 4]], [[5], [6, 7]]]
    sets = [set_of(local, "arrow", documents, shape), index]
    pack = Pack(length=4, mode="best_fit", output="index")
    write_dataset(local, write_documents(local, documents, 60_000), sets, 60_000, pack=pack)
    with stored_at(tmp_path, local) as stored:
        there = tokenmill.open(stored.url, cache=tmp_path / "cache").packed()
        assert [one.tolist() for one in there] == [[3, 4, 5], [6, 7]]
        assert sorted(one.tolist() for one in there.shuffle(1, block=1)) == [[3, 4, 5], [6, 7]]


def test_a_shuffled_index_needs_room_for_all_parts(tmp_path: Path) -> None:
    local = tmp_path / "tokens"
    local.mkdir()
    documents = [[[1, 2], [3, 4]], [[5], [6, 7]]]
    sets = [set_of(local, "arrow", documents, shape_of(60_000))]
    sets.append(write_index(local, [[[(1, 0, 0, 1), (0, 1, 0, 2)], [(1, 1, 0, 2)]]], shape_of(60_000)))
    pack, shuffle = Pack(length=4, mode="best_fit", output="index"), Shuffle(seed=0)
    write_dataset(local, write_documents(local, documents, 60_000), sets, 60_000, pack=pack, shuffle=shuffle)
    with stored_at(tmp_path, local) as stored:
        whole = tokenmill.open(stored.url, cache=tmp_path / "cache", cache_bytes=1 << 20).packed()
        assert [one.tolist() for one in whole] == [[5, 3, 4], [6, 7]]
        dataset = tokenmill.open(stored.url, cache=tmp_path / "cache", cache_bytes=stored.n_bytes - 1)
        with pytest.raises(ParamsError, match=r"packed: expected parts that fit .* Its index is shuffled"):
            dataset.packed()


def test_an_epoch_in_order_fetches_each_part_once_within_the_limit(stored: Stored, tmp_path: Path) -> None:
    limit, cache, most, ended = stored.n_bytes // 8, tmp_path / "cache", [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.002):
            most[0] = max(most[0], held_bytes(cache))

    watching = threading.Thread(target=watch)
    watching.start()
    dataset = tokenmill.open(stored.url, cache=cache, cache_bytes=limit)
    for _ in range(2):
        stored.server.sent.clear()
        assert same(dataset, tokenmill.open(stored.local, format="arrow"))
        sent = sum(n_bytes for name, n_bytes in stored.server.sent.items() if name.endswith(".arrow"))
        assert sent <= 1.05 * stored.n_bytes
    ended.set()
    watching.join()
    assert limit // 2 < most[0] <= limit


def test_shuffled_blocks_stay_within_the_limit_and_what_does_not_fit_is_refused(stored: Stored, tmp_path: Path) -> None:
    dataset = tokenmill.open(stored.url, cache=tmp_path / "cache", cache_bytes=stored.n_bytes // 3)
    here = tokenmill.open(stored.local)
    assert same(dataset.shuffle(seed=2, block=5), here.shuffle(seed=2, block=5))
    assert held_bytes(tmp_path / "cache") <= stored.n_bytes // 3
    with pytest.raises(ParamsError, match=r"found 30 that are read together, with .* Give a block, such as block=64"):
        dataset.shuffle(seed=2)
    with pytest.raises(ParamsError, match="found 12 that are read together"):
        dataset.shuffle(seed=2, block=12)
    with pytest.raises(ParamsError, match=r"cache_bytes: expected .* at least, the size of the largest part; found 10"):
        tokenmill.open(stored.url, cache=tmp_path / "cache", cache_bytes=10)
    whole = tokenmill.open(stored.url, cache=tmp_path / "cache", cache_bytes=stored.n_bytes)
    assert same(whole.shuffle(seed=2), here.shuffle(seed=2))


def test_blocks_that_are_smaller_than_a_lookup_are_fetched_once(stored: Stored, tmp_path: Path) -> None:
    dataset = tokenmill.open(stored.url, cache=tmp_path / "cache", cache_bytes=stored.n_bytes // 3)
    here = tokenmill.open(stored.local).shuffle(seed=2, block=1)
    assert same(dataset.shuffle(seed=2, block=1), here)
    assert sum(n for name, n in stored.server.begun.items() if name.endswith(".arrow")) == N_PARTS


def test_sequences_over_the_ends_of_parts_fetch_one_part_more_for_each_run(stored: Stored, tmp_path: Path) -> None:
    dataset = tokenmill.open(stored.url, cache=tmp_path / "cache", cache_bytes=stored.n_bytes * 4 // 5).sequences(70)
    here = tokenmill.open(stored.local).sequences(70).shuffle(seed=2, block=9)
    assert same(dataset.shuffle(seed=2, block=9), here)
    n_fetched = sum(n for name, n in stored.server.begun.items() if name.endswith(".arrow"))
    assert n_fetched <= N_PARTS + N_PARTS // 3  # runs of three


def test_batches_fetch_each_part_once(stored: Stored, tmp_path: Path) -> None:
    there = tokenmill.open(stored.url, cache=tmp_path / "cache", cache_bytes=stored.n_bytes // 3)
    here = tokenmill.open(stored.local)
    expected = Batches(here.shuffle(seed=2, block=3), 7, 1, 2)
    found = Batches(there.shuffle(seed=2, block=3), 7, 1, 2)
    assert all(np.array_equal(a["labels"], b["labels"]) for a, b in zip(found, expected, strict=True))
    assert sum(n for name, n in stored.server.begun.items() if name.endswith(".arrow")) == N_PARTS


def test_a_file_that_is_fetched_ahead_leaves_room_for_those_needed_before_it(tmp_path: Path) -> None:
    files = [DatasetFile(name=name, n_bytes=10, sha256="") for name in "abcd"]
    visits = Visits([[file] for file in files], cache_bytes=None)
    room = [make_room(tmp_path, files[i], 30, visits.next_use, visits.before(files[i]), i, 1) for i in (3, 2, 1)]
    assert room == [False, True, True]


def test_two_processes_fetch_each_part_once(stored: Stored, tmp_path: Path) -> None:
    stored.server.faults.wait_s = 0.01
    common = [sys.executable, "-c", READ, stored.url, str(tmp_path / "cache"), "0"]
    ranks = [
        subprocess.Popen([*common, str(rank), "2"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    found = [[int(line) for line in rank.communicate()[0].split()] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    expected = [one.item(0) for one in tokenmill.open(stored.local)]
    assert found == [expected[::2], expected[1::2]]
    assert {stored.server.begun[stored.name(part)] for part in range(N_PARTS)} == {1}


def test_a_process_that_is_forked_reads_by_itself(stored: Stored, tmp_path: Path) -> None:
    dataset = tokenmill.open(stored.url, cache=tmp_path / "cache")
    assert dataset[0].item(0) == 0
    process = os.fork()
    if process == 0:
        os._exit(0 if dataset[PER_PART * 20].item(0) == 20_000 else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert dataset[PER_PART * 10].item(0) == 10_000


def test_a_killed_process_leaves_no_lock_and_its_part_is_resumed(stored: Stored, tmp_path: Path) -> None:
    tokenmill.open(stored.url, cache=tmp_path / "cache")  # fetches the manifest
    first = stored.server.folder / stored.name(0)
    folder = tmp_path / "cache" / stored.url.rpartition("/")[2]
    stored.server.faults.wait_s = 5
    command = [sys.executable, "-c", READ, stored.url, str(tmp_path / "cache"), "0", "0", "1"]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    partial = folder / f"arrow/part-00000.arrow.{first.stat().st_size}.partial"
    while not partial.exists():
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.wait()
    while not (lock := FolderLock(folder, "arrow/part-00000.arrow")).try_take():  # its fetching process ends by itself
        time.sleep(0.01)
    partial.write_bytes(first.read_bytes()[:4000])
    lock.release()
    stored.server.faults.wait_s = 0
    stored.server.sent.clear()
    assert tokenmill.open(stored.url, cache=tmp_path / "cache")[0].item(0) == 0
    assert stored.server.sent[stored.name(0)] == first.stat().st_size - 4000


def test_a_part_that_is_damaged_once_is_fetched_again_and_twice_is_an_error_that_names_it(
    stored: Stored, tmp_path: Path
) -> None:
    stored.server.faults.damaged = {stored.name(3): 1}
    assert same(tokenmill.open(stored.url, cache=tmp_path / "cache"), tokenmill.open(stored.local))
    assert stored.server.begun[stored.name(3)] == 2
    stored.server.faults.damaged = {stored.name(3): 2}
    found, expected = [], [one.item(0) for one in tokenmill.open(stored.local)]
    with pytest.raises(ValidationError, match=r"part-00003\.arrow: was fetched twice, and is not the file that"):
        for ids in tokenmill.open(stored.url, cache=tmp_path / "other"):
            found.append(ids.item(0))
    assert found == expected[: len(found)] and len(found) <= 3 * PER_PART


def test_a_file_in_the_cache_that_lost_its_end_is_fetched_again(stored: Stored, tmp_path: Path) -> None:
    assert tokenmill.open(stored.url, cache=tmp_path / "cache")[0].item(0) == 0
    [path] = (tmp_path / "cache").rglob("part-00000.arrow")
    path.write_bytes(path.read_bytes()[:-1])
    assert tokenmill.open(stored.url, cache=tmp_path / "cache")[0].item(0) == 0


@pytest.mark.slow
def test_an_outage_is_an_error_after_the_patience_and_what_is_there_is_read(stored: Stored, tmp_path: Path) -> None:
    remote = remote_dataset(stored.url, tmp_path / "cache", None, patience_s=0.5)
    assert remote is not None
    dataset = open_remote(remote)
    assert [dataset[part * PER_PART].item(0) for part in (0, 20)] == [0, 20_000]
    time.sleep(1)  # while parts are fetched ahead
    stored.server.faults.is_out = True
    assert open_remote(remote)[0].item(0) == 0
    with pytest.raises(StorageError, match="the storage cannot be reached now"):
        _ = dataset[10 * PER_PART]
    stored.server.faults.is_out = False
    assert dataset[10 * PER_PART].item(0) == 10_000


def test_the_manifest_must_be_the_one_of_the_url(stored: Stored, tmp_path: Path) -> None:
    place, _, digest = stored.url.rpartition("/")
    wrong = stored.server.folder / "bucket" / ("0" * 16)
    (stored.server.folder / "bucket" / digest).rename(wrong)
    with pytest.raises(ValidationError, match=f"expected the manifest with the digest {'0' * 16}…; found {digest}"):
        tokenmill.open(f"{place}/{'0' * 16}", cache=tmp_path / "cache")
    with pytest.raises(ValidationError, match=r"expected an uploaded dataset, which has tokens/manifest\.json"):
        tokenmill.open(stored.url, cache=tmp_path / "cache")
    assert not (tmp_path / "cache" / digest / "manifest.json").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://bucket/datasets/0123", "expected PLACE/DIGEST, with 16 digits .* found '0123' at its end"),
        ("hf://datasets/a/b/0123456789abcdef", "is not read where it lies"),
        ("http://example.org/0123456789abcdef", "has no TLS"),
        ("https://user:word@example.org/0123456789abcdef", "the URL holds a password"),
        ("ftp://host/0123456789abcdef", "expected a URL that begins with s3://"),
    ],
)
def test_urls_that_cannot_be_read_say_why(url: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=message):
        tokenmill.open(url, cache=tmp_path)


def test_without_a_cache_files_read_longest_ago_make_room_in_the_default_one(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tokenmill_reader.urls._CACHE_BYTES", stored.n_bytes + 150)
    cache = tmp_path / "home/tokenmill/datasets"
    earlier = [cache / digest / "arrow/part-00000.arrow" for digest in ("f" * 16, "e" * 16)]
    for read_s, path in enumerate(earlier):
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(100))
        os.utime(path, (read_s, 10**9))
    assert same(tokenmill.open(stored.url), tokenmill.open(stored.local))
    assert [path.exists() for path in earlier] == [False, True]
    assert held_bytes(cache) == stored.n_bytes + 100
    folder = cache / stored.url.rpartition("/")[2]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_has_no_cache(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="cache: expected the URL of an uploaded dataset; found the folder"):
        tokenmill.open(tmp_path, cache=tmp_path)
    with pytest.raises(ParamsError, match="cache_bytes: expected a number of bytes, or None for no limit; found 0"):
        tokenmill.open("s3://b/0123456789abcdef", cache=tmp_path, cache_bytes=0)
