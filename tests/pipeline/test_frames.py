"""The way from the command to the documents stays short enough to follow in a debugger."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tokenmill
from tests.conftest import Project
from tokenmill.corpus import formats

FRAMES_MAX = 16


PACKAGE = f"{Path(tokenmill.__file__).parent}/"


def own_frames(frame: FrameType | None) -> Iterator[str]:
    """The functions of tokenmill on a stack, the innermost first."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            yield f"{frame.f_code.co_filename.removeprefix(PACKAGE)} {frame.f_code.co_qualname}"
        frame = frame.f_back


def test_few_functions_lie_between_the_command_and_the_first_byte_that_count_reads(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = []

    class Stream:
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def read(self, n_bytes: int) -> bytes:
            main = sys._current_frames()[threading.main_thread().ident or 0]
            if threading.current_thread() is not threading.main_thread():
                stacks.append([*own_frames(sys._getframe()), *own_frames(main)])
            found: bytes = self._stream.read(n_bytes)
            return found

    real = formats.decompressed
    monkeypatch.setattr(formats, "decompressed", lambda *some: Stream(real(*some)))
    project.build()
    counting = [stack for stack in stacks if any(one.endswith(" CountTask.run") for one in stack)]
    assert counting and len(counting[0]) <= FRAMES_MAX, counting
