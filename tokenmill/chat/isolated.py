"""Renders conversations in separate processes, because a chat template is foreign code that may loop for ever or take all memory.
Limits on time and memory end such a process, as does the end of the call that waits for it.

`python -m tokenmill.chat.isolated SECONDS` reads requests: a line with the JSON of a `Way`, a line with the numbers of bytes of the
conversations, and then these. For each it writes a line of JSON, an `_Answer` or why it cannot be rendered, and then its texts.
"""

import atexit
import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from typing import NamedTuple

import msgspec
import pyarrow as pa

from tokenmill import _core
from tokenmill.chat.conversation import read_conversation
from tokenmill.chat.rendering import Renderer, Rendering, Way
from tokenmill.chat.template import MEMORY_BYTES_MAX, ChatTemplate
from tokenmill.errors import ChatError
from tokenmill.process_memory import limit_memory
from tokenmill_reader.child_python import command_of

SECONDS_MAX = 60
"""The CPU time limit for one conversation."""
_LOOK_S = 0.1  # the interval of checks for a reason to stop, while waiting for renderings
_BUFFER_BYTES = 1 << 20
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy's OpenBLAS starts a thread for each processor and takes 41 MB for it: with 24 processors, all memory of the process."""


class _RenderingHead(NamedTuple):
    """A rendering without its texts, which follow. `n_text`, `n_guarded`: their lengths in bytes; `n_guarded` is None without a
    second text."""

    rest: Rendering
    n_text: int
    n_guarded: int | None


_decoder = msgspec.json.Decoder(_RenderingHead | str)


class _Process:
    """A rendering process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            command_of("tokenmill.chat.isolated", str(SECONDS_MAX)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal then reaches only the waiting process
            env=os.environ | _ONE_THREAD,
            bufsize=_BUFFER_BYTES,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._requests, self._answers = self.process.stdin, self.process.stdout

    def ask(self, request: bytes) -> None:
        """Sends a request. Does nothing if the process has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(request)
            self._requests.flush()

    def answer(self) -> Rendering | str:
        """Reads the next rendering, or the reason why there is none. Raises EOFError if the process has ended."""
        line = self._answers.readline()
        if not line:
            raise EOFError
        answer: _RenderingHead | str = _decoder.decode(line)
        if isinstance(answer, str):
            return answer
        n = answer.n_text + (answer.n_guarded or 0)
        texts = self._answers.read(n)
        if len(texts) < n:
            raise EOFError
        guarded = None if answer.n_guarded is None else texts[answer.n_text :].decode()
        return answer.rest._replace(text=texts[: answer.n_text].decode(), guarded=guarded)

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> int:
        """Ends the process, and gives its exit code; the negative number of a signal."""
        self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()
        return self.process.wait()


_idle: deque[_Process] = deque()
os.register_at_fork(after_in_child=_idle.clear)


@atexit.register
def end_all() -> None:
    """Ends the processes that wait for work."""
    while _idle:
        _idle.pop().end()


def _idle_or_new() -> _Process:
    while True:
        try:
            process = _idle.pop()
        except IndexError:
            return _Process()
        if process.is_alive():
            return process
        process.end()


def start() -> None:
    """Starts a process for the next request, unless one waits for work."""
    if not _idle:
        _idle.append(_Process())


class Request:
    """Conversations that a process renders while the caller does something else. Call `close` at the end."""

    def __init__(self, way: bytes, conversations: pa.LargeStringArray) -> None:
        """Sends conversations, given as canonical JSON. `way`: the JSON of a `Way`."""
        texts = [text.encode() for text in conversations.to_pylist()]
        self._process: _Process | None = _idle_or_new()
        executor = ThreadPoolExecutor(1, thread_name_prefix="render")
        self._answers = executor.submit(_exchange, self._process, way, texts)
        executor.shutdown(wait=False)

    def wait(self) -> None:
        """Waits for the last rendering. Raises UnitTimeoutError at the thread's deadline, and KeyboardInterrupt."""
        while not wait([self._answers], _LOOK_S).done:
            _core.look()
        if self._process is not None and self._answers.exception() is None:
            _idle.append(self._process)
            self._process = None

    def renderings(self) -> list[Rendering]:
        """The renderings. Raises ChatError for a conversation that cannot be rendered within the limits, and what `wait` raises."""
        self.wait()
        found, error = self._answers.result()
        if error is not None:
            raise ChatError(len(found), error)
        return found

    def close(self) -> None:
        """Ends the process, unless it has rendered all."""
        if self._process is not None:
            self._process.process.kill()
            wait([self._answers])
            self._process.end()


def _exchange(process: _Process, way: bytes, texts: list[bytes]) -> tuple[list[Rendering], str | None]:
    """The renderings of conversations, and why there is none of the next one; None behind the last."""
    found: list[Rendering] = []
    process.ask(b"%b\n%b\n%b" % (way, msgspec.json.encode(list(map(len, texts))), b"".join(texts)))
    while len(found) < len(texts):
        try:
            answer = process.answer()
        except EOFError:
            return found, _why_ended(process.end())
        if isinstance(answer, str):
            return found, answer
        found.append(answer)
    return found, None


def _why_ended(code: int) -> str:
    if code == -signal.SIGPROF:
        return f"the chat template takes more than {SECONDS_MAX:,} s for it. Look for a loop in the template that does not end."
    if code == errno.ENOMEM:
        return f"rendering it takes more than {MEMORY_BYTES_MAX / 1e9:g} GB of memory. Cut it, or simplify the chat template."
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the process that renders it by the chat template ended with {how}. If the system had no memory left, free some."


@lru_cache(maxsize=4)
def _renderers(way: bytes) -> tuple[Renderer | None, Renderer | None]:
    """The renderers for conversations without and with tools."""
    given = msgspec.json.decode(way, type=Way)
    settings = given.settings

    def renderer(text: str | None) -> Renderer | None:
        return None if text is None else Renderer(ChatTemplate(text, settings.variables, given.place), text, given)

    without_tools = renderer(settings.template)
    return without_tools, renderer(settings.tool_use_template) or without_tools


def _rendered(way: bytes, texts: list[str]) -> Iterator[Rendering]:
    """Renders each conversation by the template that transformers would choose."""
    array = pa.array(texts, pa.large_string())
    renderers = _renderers(way)
    suspects = {one: one.suspects(array) for one in renderers if one is not None}
    for i, text in enumerate(texts):
        conversation = read_conversation(text, i)
        renderer = renderers[conversation.tools is not None]
        if renderer is None:
            raise ChatError(
                i,
                "it has no tools, and the tokenizer's chat template named tool_use is for conversations with tools. Give the "
                "tokenizer one named default, too, or name a file as the template.",
            )
        yield renderer.rendering(conversation, text, i, i in suspects[renderer])


def main(seconds_max: float) -> None:
    """Answers the requests on standard input."""
    limit_memory(MEMORY_BYTES_MAX)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while way := requests.readline():
        lengths = msgspec.json.decode(requests.readline(), type=list[int])
        texts = [requests.read(n).decode() for n in lengths]
        signal.setitimer(signal.ITIMER_PROF, seconds_max)  # the signal of this limit ends the process
        try:
            for one in _rendered(way, texts):
                text, guarded = one.text.encode(), None if one.guarded is None else one.guarded.encode()
                answer = _RenderingHead(
                    one._replace(text="", guarded=None), len(text), None if guarded is None else len(guarded)
                )
                answers.write(b"%b\n%b%b" % (msgspec.json.encode(answer), text, guarded or b""))
                answers.flush()
                signal.setitimer(signal.ITIMER_PROF, seconds_max)
        except ChatError as error:
            said = str(error).encode(errors="backslashreplace").decode()
            answers.write(msgspec.json.encode(said) + b"\n")
            answers.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    try:
        main(float(sys.argv[1]))
    except MemoryError:
        sys.exit(errno.ENOMEM)
