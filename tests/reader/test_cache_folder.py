"""The folder that keeps files of a remote dataset is trusted for nothing that somebody may have put there or changed in it."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

import tokenmill
from tests.builders.document_sets import documents_dataset
from tests.builders.object_server import ObjectServer, serving
from tokenmill.errors import StorageError, ValidationError
from tokenmill_reader import cache_folder
from tokenmill_reader.cache_folder import FolderLock
from tokenmill_reader.manifest import read_content
from tokenmill_reader.object_clients import bounded_bytes

PARTS = [[[1, 2, 3], [4]], [[5, 6]]]
NAME = "megatron/part-00000.bin"
N_BYTES = 8  # of that file


class Stored:
    """A dataset with a cache folder. `server`: serves it where it is asked by http."""

    def __init__(self, tmp_path: Path) -> None:
        made = documents_dataset(tmp_path / "made/tokens", PARTS, ["megatron"])
        digest = read_content(made)["digest"][:16]
        made.parent.rename(tmp_path / digest)
        self.place = tmp_path / digest
        self.folder = tmp_path / "cache" / digest
        self.outside = tmp_path / "outside"
        self.outside.write_bytes(b"12345678")

    def items(self, url: str | None = None, cache_bytes: int | None = None) -> list[list[int]]:
        """All items, read through the cache."""
        cache = self.folder.parent
        dataset = tokenmill.open(url or f"file://{self.place}", cache=cache, cache_bytes=cache_bytes, format="megatron")
        return [one.tolist() for one in dataset]

    def path(self, name: str) -> Path:
        """A path in the cache folder, whose folder is made."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


ITEMS = [item for part in PARTS for item in part]


def flip(stored: Stored) -> None:
    path = stored.path(NAME)
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def flip_and_keep_the_time(stored: Stored) -> None:
    before = stored.path(NAME).stat()
    flip(stored)
    os.utime(stored.path(NAME), ns=(before.st_atime_ns, before.st_mtime_ns))


def link_elsewhere(stored: Stored) -> None:
    stored.path(NAME).unlink()
    stored.path(NAME).symlink_to(stored.outside)


def plant(stored: Stored) -> None:
    stored.path(".locks").joinpath(NAME.replace("/", "%2F")).unlink()
    flip(stored)


CHANGES: list[Callable[[Stored], None]] = [flip, flip_and_keep_the_time, link_elsewhere, plant]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_cached_file_that_was_changed_is_fetched_again(stored: Stored, change: Callable[[Stored], None]) -> None:
    assert stored.items() == ITEMS
    change(stored)
    assert stored.items() == ITEMS
    assert stored.outside.read_bytes() == b"12345678"


@pytest.mark.parametrize(
    "name", ["x.partial", "a.1x.partial", f"b.{10**30}.partial", "c.5.partial", f"{NAME}.77.partial"]
)
def test_a_stray_partial_file_makes_room(stored: Stored, name: str) -> None:
    stored.path(name).write_bytes(b"stray")
    assert stored.items(cache_bytes=200) == ITEMS


def test_a_partial_file_that_is_longer_than_the_file_is_begun_anew(stored: Stored) -> None:
    path = stored.path(f"{NAME}.{N_BYTES}.partial")
    path.touch()
    os.truncate(path, 1 << 40)  # to read it would take minutes
    assert stored.items() == ITEMS


@pytest.mark.parametrize("name", [f"{NAME}.{N_BYTES}.partial", f".locks/{NAME.replace('/', '%2F')}", "manifest.json"])
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_file_of_ours_is_named_and_left(stored: Stored, name: str, kind: str) -> None:
    path = stored.path(name)
    match kind:
        case "link":
            path.symlink_to(stored.outside)
        case "fifo":
            os.mkfifo(path)
        case _:
            path.mkdir()
    with pytest.raises(StorageError, match="expected a file; found a link, a folder or a device"):
        stored.items()
    assert stored.outside.read_bytes() == b"12345678"


@pytest.mark.parametrize("name", [".locks", "megatron"])
@pytest.mark.parametrize("kind", ["link", "fifo", "file"])
def test_a_folder_in_it_that_is_something_else_is_named_and_left(
    stored: Stored, name: str, kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert stored.items() == ITEMS
    moved = stored.path(name).rename(tmp_path / "moved")
    match kind:
        case "link":
            stored.path(name).symlink_to(moved)
        case "fifo":
            os.mkfifo(stored.path(name))
        case _:
            stored.path(name).touch()
    before = [(path, path.stat().st_mtime_ns) for path in (moved, *sorted(moved.iterdir()))]
    with pytest.raises(StorageError, match=rf"{re.escape(name)}: expected a folder of user"):
        stored.items()
    assert before == [(path, path.stat().st_mtime_ns) for path in (moved, *sorted(moved.iterdir()))]
    assert "Traceback" not in capfd.readouterr().err


def test_the_folder_is_for_this_user_alone(stored: Stored) -> None:
    stored.path("manifest.json").parent.chmod(0o777)
    assert stored.items() == ITEMS
    assert stored.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_is_refused(stored: Stored) -> None:
    os.chown(stored.path("manifest.json").parent, 12345, 12345)
    with pytest.raises(StorageError, match="expected a folder of user 0; found one of 12345"):
        stored.items()


def test_a_folder_that_is_a_link_is_refused(stored: Stored, tmp_path: Path) -> None:
    stored.folder.parent.mkdir()
    stored.folder.symlink_to(tmp_path)
    with pytest.raises(StorageError, match="or a link"):
        stored.items()


def test_a_wait_for_a_lock_ends_and_names_it(stored: Stored, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache_folder, "_STILL_S_MIN", 0.05)
    with FolderLock(tmp_path, "a/b") as held, FolderLock(tmp_path, "a/b") as waiting:
        assert held.try_take()
        with pytest.raises(StorageError, match=r"a%2Fb: another process holds this lock, and has not gone on with a/b"):
            waiting.share(0.01)


@pytest.fixture
def server(stored: Stored) -> Iterator[ObjectServer]:
    with serving(stored.place.parent) as server:
        yield server


def test_a_server_that_sends_more_than_was_asked_is_refused(stored: Stored, server: ObjectServer) -> None:
    url = f"{server.url}/{stored.place.name}"
    assert stored.items(url) == ITEMS
    server.faults.n_more = 100
    stored.path(NAME).unlink()
    with pytest.raises(StorageError, match=f"sends more than the {N_BYTES} bytes that were asked for"):
        stored.items(url)


def test_an_answer_is_read_up_to_its_bound() -> None:
    store = MemoryStore()
    store.put("x", b"12345678")
    assert bounded_bytes("x", store.get("x"), 8) == b"12345678"
    with pytest.raises(StorageError, match="sends more than the 7 bytes"):
        bounded_bytes("x", store.get("x"), 7)


def test_the_folder_may_have_a_name_that_is_not_utf_8(stored: Stored) -> None:
    stored.folder = Path(os.fsdecode(os.fsencode(stored.folder.parent) + b"\xff")) / stored.folder.name
    assert stored.items() == ITEMS
    with pytest.raises(ValidationError, match="pyarrow opens no file in a folder whose name is not UTF-8"):
        tokenmill.open(f"file://{stored.place}", cache=stored.folder.parent, format="parquet")[0]


@pytest.mark.parametrize("value", ["some", "0", "-1", ""])
def test_a_number_of_threads_that_ends_the_process_of_obstore_is_named(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TOKIO_WORKER_THREADS", value)
    with pytest.raises(StorageError, match="the environment's TOKIO_WORKER_THREADS: expected a number of threads"):
        stored.items()
