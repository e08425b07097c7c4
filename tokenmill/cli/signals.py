"""How a command ends by a signal, also when its threads are in calls that no signal reaches."""

import os
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread, Timer
from types import FrameType
from typing import NamedTuple

from tokenmill.calls import n_running
from tokenmill.cli.answer import back_to_stdout, print_error
from tokenmill.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, Terminated

_AGAIN_S = 0.05
_ENDS_S = 1.0
"""The time that the main thread has to take a signal, and that calls have to end. Most calls of the core need milliseconds."""

received: list[int] = []
"""The signals that arrived. A library may turn the exception of a signal into an error of its own: fsspec, into "file not
found"."""


class Ending(NamedTuple):
    """What a command says when a signal ends it."""

    command: str | None
    given: Sequence[str]

    def tell(self, ended: BaseException) -> int:
        """Prints that the command was interrupted (KeyboardInterrupt) or terminated. Gives the exit code."""
        is_interrupted = isinstance(ended, KeyboardInterrupt)
        # The stored facts about files may not have been deleted yet, so --rehash is needed again.
        again = "build --rehash" if "--rehash" in self.given else "refresh" if self.command == "refresh" else "build"
        advice = f" Run `tokenmill {again}` to go on." if self.command in (None, "build", "refresh") else ""
        print(f"tokenmill: {'interrupted' if is_interrupted else 'terminated'}.{advice}", file=sys.stderr)
        if "--json" in self.given:
            print_error(self.command, ended)
        return EXIT_INTERRUPTED if is_interrupted else EXIT_TERMINATED


def exception_of(number: int) -> BaseException:
    """The exception that a signal raises."""
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated()


@contextmanager
def taken(ending: Ending) -> Iterator[None]:
    """In the block, signals raise KeyboardInterrupt or Terminated in the main thread. While a thread is in a long call, which
    nothing can interrupt, a signal ends the process, which leaves what `kill -9` leaves.

    Python runs handlers of signals in the main thread alone, between two of its instructions. Another thread therefore reads
    from a pipe which signals arrived.
    """
    received.clear()
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
        signal.signal(signal.SIGHUP, _hang_up)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    is_over = Event()
    Thread(target=_watch, args=(read, is_over, ending), name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        is_over.set()
        os.close(write)


# A forked process would tell this one of its signals.
os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


def _watch(read: int, is_over: Event, ending: Ending) -> None:
    """Ends the process if the main thread has not taken a signal in time, or if a call runs on although the main thread has."""
    handlers = {signal.SIGINT: _interrupt, signal.SIGTERM: _terminate, signal.SIGHUP: _hang_up}
    with open(read, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            if number[0] not in handlers:
                continue
            is_ours = signal.getsignal(number[0]) is handlers[signal.Signals(number[0])]  # not Prefect's, for instance
            while not is_over.wait(_ENDS_S):
                if (is_ours and not received) or n_running():
                    sys.stdout = sys.__stdout__
                    back_to_stdout()
                    code = ending.tell(exception_of(number[0]))
                    sys.stderr.flush()
                    os._exit(code)
            return


def _terminate(number: int, _frame: FrameType | None) -> None:
    _record(number)
    raise Terminated


def _hang_up(_number: int, _frame: FrameType | None) -> None:
    """Ends the command like _terminate. If the terminal is gone, later output goes to /dev/null, because writing would fail."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for stream in (1, 2):
        with suppress(OSError):  # the stream is closed
            if stat.S_ISCHR(os.fstat(stream).st_mode):  # `isatty` is false for a terminal that is gone
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(nowhere, stream)
                os.close(nowhere)
    _record(signal.SIGTERM)
    raise Terminated


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _record(number)
    raise KeyboardInterrupt


def _record(number: int) -> None:
    received.append(number)
    sys.unraisablehook = _send_again


def _send_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Sends a signal again if Python ignored its exception. Python ignores exceptions in the finalizer of an object."""
    if ignored.exc_type in (KeyboardInterrupt, Terminated):
        again = Timer(_AGAIN_S, os.kill, (os.getpid(), received[-1]))
        again.daemon = True
        again.start()
