"""Files and directories that appear whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokenmill.storage.atomic import is_left_over, md5_file, partial_path, write_atomic, write_directory
from tokenmill_reader.regular_files import sha256_file


def test_a_file_appears_when_the_block_ends_well(tmp_path: Path) -> None:
    with write_atomic(tmp_path / "deep" / "a") as path:
        path.write_text("new", encoding="utf-8")
        assert not (tmp_path / "deep" / "a").exists()
    assert (tmp_path / "deep" / "a").read_text(encoding="utf-8") == "new"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    with pytest.raises(RuntimeError), write_atomic(tmp_path / "a") as path:
        path.write_text("half", encoding="utf-8")
        raise RuntimeError
    assert [(p.name, p.read_text(encoding="utf-8")) for p in tmp_path.iterdir()] == [("a", "old")]


def test_a_hard_link_keeps_its_bytes_when_the_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("old", encoding="utf-8")
    os.link(tmp_path / "cache", tmp_path / "a")
    with write_atomic(tmp_path / "a") as path:
        path.write_text("new", encoding="utf-8")
    assert (tmp_path / "cache").read_text(encoding="utf-8") == "old"


def test_what_a_process_wrote_that_ended_and_was_not_waited_for_is_left_over(tmp_path: Path) -> None:
    code = "from pathlib import Path; from tokenmill.storage.atomic import partial_path as of; print(of(Path('d'))); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        partial = tmp_path / process.stdout.readline().strip()
        assert not is_left_over(partial)
        process.kill()
        process.stdout.read()  # its end; its parent has yet to ask how it ended
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_left_over(partial)


def test_a_directory_replaces_the_old_one_whole(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "gone").touch()
    with write_directory(tmp_path / "d") as directory:
        (directory / "here").touch()
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["here"]
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_an_error_leaves_the_old_directory_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "old").touch()
    with pytest.raises(RuntimeError), write_directory(tmp_path / "d") as directory:
        (directory / "half").touch()
        raise RuntimeError
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")) == ["d", "d/old"]


def test_leftovers_of_ended_processes_go_and_those_of_live_ones_stay(tmp_path: Path) -> None:
    mine = partial_path(tmp_path / "d").name
    dead = tmp_path / "d.999999999-1.partial"
    reused = tmp_path / f"d.{os.getpid()}-1.partial"  # of a process that had our id before us
    old = tmp_path / f"d.{os.getpid()}.partial"
    alive = tmp_path / mine.replace(str(os.getpid()), "1", 1).replace(started(os.getpid()), started(1))
    for path in (dead, reused, old, alive):
        path.mkdir()
    with write_directory(tmp_path / "d"):
        pass
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "d", alive])


def started(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]


def test_an_error_of_writing_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as raised, write_atomic(tmp_path / "a") as path:
        path.symlink_to("/dev/full")
        path.write_bytes(b"x" * 100_000)
    assert raised.value.filename == str(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_file_that_became_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    for digest in (sha256_file, md5_file):
        with pytest.raises(OSError, match="it is a FIFO"):
            digest(tmp_path / "a")
