"""Runs the tries of a target, in a process of their own."""

import faulthandler
import os
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.places import caches, repositories, uploads
from tests.fuzz.targets import Try, conversions, datasets, readers, templates, tokenizers
from tokenmill.errors import TokenmillError

TARGETS: dict[str, Callable[[Path], Try]] = {
    one.__name__: one for one in (readers, datasets, tokenizers, conversions, templates, uploads, repositories, caches)
}

_HANG_S = 10
_MEMORY_BYTES_MAX = 1 << 30
_ADDRESS_BYTES_MAX = 2 << 30
"""What a try may reserve in addition to what the process has. Of a length in a file, memory is often reserved and never used."""


def run_tries(name: str, seed: int, seconds: float, once: bool, base: Path) -> None:
    """Tries one seed after another in this process, which ends at the first find. The seconds begin with the first try."""
    with (base / "said").open("w") as said:
        os.dup2(said.fileno(), 2)
    faulthandler.enable()
    folder, prepared = base / "try", base / "prepared"
    shutil.rmtree(prepared, ignore_errors=True)
    prepared.mkdir()
    attempt = TARGETS[name](prepared)
    opened = _opened_in(prepared / "outside")
    resource.setrlimit(resource.RLIMIT_AS, (_used("VmSize") + _ADDRESS_BYTES_MAX,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not (end := base / "end").exists():
        end.write_text(str(time.monotonic() + seconds))
    end_s = float(end.read_text())
    while True:
        (base / "seed").write_text(str(seed))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        before = _used("VmRSS")
        faulthandler.dump_traceback_later(_HANG_S, exit=True)
        try:
            attempt(Random(f"{name} {seed}"), folder)
        except TokenmillError as error:
            assert "alloc of size" not in str(error), "a length was not checked before memory was reserved for it"
            with (base / "refused").open("a") as refused:
                refused.write("x")
        faulthandler.cancel_dump_traceback_later()
        assert not opened, f"{opened[0]} leads out of its folder, and was opened"
        assert _used("VmHWM") - before < _MEMORY_BYTES_MAX, f"{_used('VmHWM') - before:,} bytes"
        if once or time.monotonic() > end_s:
            return
        seed += 1


def _opened_in(folder: Path) -> list[str]:
    """Notes from now on which files of a folder this process opens, by whatever links."""
    opened: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if (
            event == "open"
            and isinstance(arguments[0], str)
            and os.path.realpath(arguments[0]).startswith(f"{folder}/")
        ):
            opened.append(arguments[0])

    sys.addaudithook(note)
    return opened


def _used(what: str) -> int:
    """A figure of this process's memory, in bytes."""
    (found,) = re.findall(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) * 1024
