"""Scratch directories end with their process, or with the next one."""

import subprocess
import sys
from pathlib import Path

from tokenmill.storage.scratch import scratch_directory

HOLD = """
import sys
from pathlib import Path
from tokenmill.storage.scratch import scratch_directory
with scratch_directory(Path(sys.argv[1]), "count-") as scratch:
    (scratch / "0.arrow").write_bytes(b"x")
    print(scratch, flush=True)
    sys.stdin.read()
"""


def test_a_scratch_directory_is_gone_at_the_end(tmp_path: Path) -> None:
    with scratch_directory(tmp_path / "new", "count-") as scratch:
        (scratch / "file").touch()
    assert not list((tmp_path / "new").iterdir())


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_holds_is_not(tmp_path: Path) -> None:
    def start() -> "tuple[subprocess.Popen[str], Path]":
        command = [sys.executable, "-c", HOLD, str(tmp_path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    (killed, left), (alive, held) = start(), start()
    killed.kill()
    killed.communicate()
    assert (left / "0.arrow").exists()
    (tmp_path / "other").mkdir()
    with scratch_directory(tmp_path, "count-") as scratch:
        assert sorted(tmp_path.iterdir()) == sorted([held, scratch, tmp_path / "other"])
        assert (held / "0.arrow").exists()
    alive.communicate("")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
