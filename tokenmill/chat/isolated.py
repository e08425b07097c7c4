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
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill import _core
from tokenmill.chat.conversation import read_conversation
from tokenmill.chat.rendering import Renderer, Rendering, Way
from tokenmill.chat.template import MEMORY_BYTES_MAX, ChatTemplate
from tokenmill.child_limits import how_ended, limit_memory
from tokenmill.errors import ChatError
from tokenmill_reader.child_python import command_of
from tokenmill_reader.shown import size

SECONDS_MAX = 60
"""The CPU time limit for one conversation."""
_LOOK_S = 0.1  # the interval of checks for a reason to stop, while waiting for renderings
_BUFFER_BYTES = 1 << 20
PART_BYTES = 8 << 20
"""The most bytes of several renderings that are held at once."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy's OpenBLAS starts a thread for each processor and takes 41 MB for it: with 24 processors, all memory of the process."""


class _RenderingHead(NamedTuple):
    """A rendering without its texts, which follow. `n_text`, `n_guarded`: their lengths in bytes; `n_guarded` is None without a
    second text."""

    rest: Rendering
    n_text: int
    n_guarded: int | None


_Answered = tuple[list[Rendering], str | None]
"""Renderings, and why there is none behind them."""

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

    def answer(self, bytes_max: int | None) -> Rendering | str:
        """Reads the next rendering, of at most `bytes_max`, or the reason why there is none. Raises EOFError if the process has
        ended."""
        line = self._answers.readline()
        if not line:
            raise EOFError
        answer: _RenderingHead | str = _decoder.decode(line)
        if isinstance(answer, str):
            return answer
        n = answer.n_text + (answer.n_guarded or 0)
        if bytes_max is not None and answer.n_text > bytes_max:
            self.end()
            return (
                f"the chat template makes {answer.n_text:,} bytes of it, and run.memory_mb_max leaves {bytes_max:,} to a worker "
                "for one. Look for a loop in the template, raise run.memory_mb_max, lower run.workers, or cut the conversation."
            )
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

    def __init__(
        self,
        way: bytes,
        conversations: pa.LargeStringArray,
        n_together: int = 1,
        bytes_max: int | None = None,
        memory_bytes: int = MEMORY_BYTES_MAX,
    ) -> None:
        """Sends conversations, given as canonical JSON. `way`: the JSON of a `Way`. `n_together`: how many belong together.
        `bytes_max`: the most bytes of a rendering; None: no limit. `memory_bytes`: the most memory of the process."""
        texts = [text.encode() for text in conversations.to_pylist()]
        self._n_left, self._of_each = len(texts), (n_together, bytes_max, memory_bytes)
        self._process: _Process | None = _idle_or_new()
        lengths = msgspec.json.encode([memory_bytes, *map(len, texts)])
        request = b"%b\n%b\n%b" % (way, lengths, b"".join(texts))
        self._answers = _in_thread(_exchange, self._process, request, self._n_left, *self._of_each)

    def wait(self) -> bool:
        """Waits until all is rendered, or as much as is held at once. Gives whether the process is done. Raises UnitTimeoutError at
        the thread's deadline, and KeyboardInterrupt."""
        while not wait([self._answers], _LOOK_S).done:
            _core.look()
        if self._process is not None and self._answers.exception() is None:
            found, error = self._answers.result()
            if error is not None or len(found) == self._n_left:
                _idle.append(self._process)
                self._process = None
        return self._process is None

    def parts(self) -> Iterator[list[Rendering]]:
        """The renderings, as many at a time as are held at once. Raises ChatError for a conversation that cannot be rendered within
        the limits, and what `wait` raises."""
        n_before = 0
        while True:
            self.wait()
            renderings, error = self._answers.result()
            if error is not None:
                raise ChatError(n_before + len(renderings), error)
            yield renderings
            n_before, self._n_left = n_before + len(renderings), self._n_left - len(renderings)
            if self._process is None:
                return
            self._answers = _in_thread(_exchange, self._process, b"", self._n_left, *self._of_each)

    def close(self) -> None:
        """Ends the process, unless it has rendered all."""
        if self._process is not None:
            self._process.process.kill()
            wait([self._answers])
            self._process.end()
            self._process = None


def _in_thread(call: Callable[..., _Answered], *arguments: Any) -> Future[_Answered]:
    executor = ThreadPoolExecutor(1, thread_name_prefix="render")
    submitted = executor.submit(call, *arguments)
    executor.shutdown(wait=False)
    return submitted


def _exchange(
    process: _Process, request: bytes, n_left: int, n_together: int, bytes_max: int | None, memory_bytes: int
) -> _Answered:
    """The renderings of the next conversations, as many as are held at once, and why there is none of the one behind them; None if
    there is one, or if there is none left."""
    renderings: list[Rendering] = []
    n_bytes = 0
    process.ask(request)
    while len(renderings) < n_left and (n_bytes < PART_BYTES or len(renderings) % n_together):
        try:
            answer = process.answer(bytes_max)
        except EOFError:
            return renderings, _why_ended(process.end(), memory_bytes)
        if isinstance(answer, str):
            return renderings, answer
        renderings.append(answer)
        n_bytes += len(answer.text)
    return renderings, None


def _why_ended(code: int, memory_bytes: int) -> str:
    if code == -signal.SIGPROF:
        return f"the chat template takes more than {SECONDS_MAX:,} s for it. Look for a loop in the template that does not end."
    if code == errno.ENOMEM:
        return f"rendering it takes more memory than {size(memory_bytes)}. Cut it, or simplify the chat template."
    return (
        f"the process that renders it by the chat template ended with {how_ended(code)}. If the system had no memory left, free "
        "some."
    )


@lru_cache(maxsize=4)
def _renderers(way: bytes) -> tuple[Renderer | None, Renderer | None]:
    """The renderers for conversations without and with tools."""
    given = msgspec.json.decode(way, type=Way)
    settings = given.settings

    def renderer(text: str | None) -> Renderer | None:
        if text is None:
            return None
        return Renderer(ChatTemplate(text, settings.variables, given.place, settings.date), text, given)

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
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while way := requests.readline():
        memory_bytes, *lengths = msgspec.json.decode(requests.readline(), type=list[int])
        limit_memory(memory_bytes)
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
