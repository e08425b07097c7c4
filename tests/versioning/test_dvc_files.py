"""DVC says what it cannot list, open or write, instead of passing over it or waiting for ever."""

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import diskcache
import pytest

from tokenmill.versioning.dvc_files import make_strict


@pytest.fixture(autouse=True)
def strict() -> None:
    make_strict()


def test_a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    from dvc_objects.fs import localfs

    with pytest.raises(FileNotFoundError):
        list(localfs.walk(str(tmp_path / "gone")))


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    from dvc_objects.fs import localfs

    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="it is a FIFO"):
        localfs.open(str(tmp_path / "fifo"), "rb")


@pytest.mark.parametrize("error", [None, errno.ENOTSUP])
def test_a_clone_has_its_name_only_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    from dvc_objects.fs import localfs, system

    source, target, there_before = tmp_path / "source", tmp_path / "target", list[bool]()
    source.write_bytes(b"bytes")

    def clone(to: int, *_: int) -> None:
        there_before.append(target.exists())
        if error is not None:
            raise OSError(error, os.strerror(error))
        os.write(to, b"bytes")

    monkeypatch.setattr(system.fcntl, "ioctl", clone)
    with nullcontext() if error is None else pytest.raises(OSError) as raised:
        localfs.reflink(str(source), str(target))
    assert there_before == [False]
    assert sorted(path.name for path in tmp_path.iterdir()) == (["source", "target"] if error is None else ["source"])
    assert target.read_bytes() == b"bytes" if error is None else raised.value.errno == error


def test_an_empty_file_that_does_not_go_away_is_not_taken_for_the_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dvc_objects.fs import localfs, system

    def failing(code: int) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        return fail

    (tmp_path / "source").write_bytes(b"bytes")
    monkeypatch.setattr(system.fcntl, "ioctl", failing(errno.ENOTSUP))
    with monkeypatch.context() as patch, pytest.raises(OSError) as raised:
        patch.setattr(os, "unlink", failing(errno.EIO))
        localfs.reflink(str(tmp_path / "source"), str(tmp_path / "target"))
    assert raised.value.errno == errno.ENOTSUP  # after which DVC copies
    [left] = {path.name for path in tmp_path.iterdir()} - {"source"}
    assert left.endswith(".tmp")


def test_a_long_name_can_be_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dvc_objects.fs import localfs, system

    (tmp_path / "source").write_bytes(b"")
    monkeypatch.setattr(system.fcntl, "ioctl", lambda *_: None)
    localfs.reflink(str(tmp_path / "source"), str(tmp_path / ("n" * 255)))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_database_that_cannot_be_written_to_is_not_tried_for_ever(tmp_path: Path) -> None:
    with diskcache.Cache(str(tmp_path), timeout=0) as cache:
        other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(diskcache.Timeout):
            cache.set("a", 1, retry=True)
        other.close()
