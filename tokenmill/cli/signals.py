"""How a command ends by a signal, also when its threads are in calls that no signal reaches."""

import os
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic
from types import FrameType

from tokenmill.calls import OutsideImports, n_running
from tokenmill.cli.answer import Stdout, print_error
from tokenmill.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, Terminated

_AGAIN_S = 0.05
"""How often the watching thread looks, once a signal arrived, whether Python ignored the exception of one."""
_ENDS_S = 1.0
"""The time that the main thread has to take a signal, and that calls have to end. Most calls of the core need milliseconds."""
_LAST_S = 120.0
"""The most time between a signal and the command's end. An exception right after a lock was taken may leave it taken; who waits for
it then waits for ever."""


class Ending:
    """What the signals that arrive do to a command, and what it says when one ends it.

    `command`: None if none is named. `given`: its arguments. `stdout`: the standard output, to which it says so.
    """

    def __init__(self, command: str | None, given: Sequence[str], stdout: Stdout) -> None:
        self.command: str | None = command
        self._given, self._stdout = given, stdout
        self.received: list[int] = []
        """The signals that arrived. A library may turn the exception of a signal into an error of its own: fsspec, into "file not
        found"."""
        self._is_telling = False
        self._ignored: int | None = None
        """The signal whose exception Python ignored, until it is sent again."""
        self._handlers = {
            signal.SIGINT: OutsideImports(self._interrupt),
            signal.SIGTERM: OutsideImports(self._terminate),
            signal.SIGHUP: OutsideImports(self._hang_up),
        }

    def tell(self, ended: BaseException) -> int:
        """Prints that the command was interrupted (KeyboardInterrupt) or terminated. Gives the exit code. Further signals do
        nothing meanwhile."""
        self._is_telling = True
        is_interrupted = isinstance(ended, KeyboardInterrupt)
        # The stored facts about files may not have been deleted yet, so --rehash is needed again.
        again = "build --rehash" if "--rehash" in self._given else "refresh" if self.command == "refresh" else "build"
        advice = f" Run `tokenmill {again}` to go on." if self.command in (None, "build", "refresh") else ""
        print(f"tokenmill: {'interrupted' if is_interrupted else 'terminated'}.{advice}", file=sys.stderr)
        if "--json" in self._given:
            print_error(self.command, ended)
        self._is_telling = False
        return EXIT_INTERRUPTED if is_interrupted else EXIT_TERMINATED

    @contextmanager
    def taken(self) -> Iterator[None]:
        """In the block, signals raise KeyboardInterrupt or Terminated in the main thread. While a thread is in a long call, which
        nothing can interrupt, a signal ends the process, which leaves what `kill -9` leaves.

        Python runs handlers of signals in the main thread alone, between two of its instructions. Another thread therefore reads
        from a pipe which signals arrived.
        """
        hook, sys.unraisablehook = sys.unraisablehook, self._send_again
        self._take(signal.SIGTERM)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            self._take(signal.SIGHUP)
        before = signal.getsignal(signal.SIGINT)
        if before is signal.default_int_handler or isinstance(before, OutsideImports):
            self._take(signal.SIGINT)
        read, write = os.pipe()
        os.set_blocking(write, False)
        written = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        is_over = Event()
        Thread(target=self._watch, args=(read, is_over), name="signals", daemon=True).start()
        try:
            yield
        finally:
            if not self.received and sys.unraisablehook == self._send_again:  # else objects may still be finalized
                sys.unraisablehook = hook
            signal.set_wakeup_fd(written)
            is_over.set()
            os.close(write)

    def _take(self, number: signal.Signals) -> None:
        signal.signal(number, self._handlers[number])

    def _watch(self, read: int, is_over: Event) -> None:
        """Ends the process if the main thread has not taken a signal in time, or if a call runs on or the command does not end
        although the main thread has."""
        with open(read, "rb", buffering=0) as numbers:
            while number := numbers.read(1):
                if number[0] not in self._handlers:
                    continue
                # A handler of Prefect, for instance, ends the command in its own way.
                is_ours = signal.getsignal(number[0]) is self._handlers[signal.Signals(number[0])]
                end_s, last_s = monotonic() + _ENDS_S, monotonic() + _LAST_S
                while not is_over.wait(_AGAIN_S):
                    if self._ignored is not None:
                        again, self._ignored = self._ignored, None
                        os.kill(os.getpid(), again)
                    if monotonic() < end_s:
                        continue
                    end_s += _ENDS_S
                    if (is_ours and not self.received) or n_running() or monotonic() > last_s:
                        sys.stdout = sys.__stdout__
                        self._stdout.restore()
                        code = self.tell(exception_of(number[0]))
                        sys.stderr.flush()
                        os._exit(code)
                return

    def _terminate(self, number: int, _frame: FrameType | None) -> None:
        self._end(number, Terminated)

    def _hang_up(self, _number: int, _frame: FrameType | None) -> None:
        """Ends the command like _terminate. If the terminal is gone, later output goes to /dev/null, because writing would fail."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for stream in (1, 2):
            with suppress(OSError):  # the stream is closed
                if stat.S_ISCHR(os.fstat(stream).st_mode):  # `isatty` is false for a terminal that is gone
                    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                    os.dup2(nowhere, stream)
                    os.close(nowhere)
        self._end(signal.SIGHUP, Terminated)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self._end(number, KeyboardInterrupt)

    def _end(self, number: int, how: type[BaseException]) -> None:
        self.received.append(number)
        if not self._is_telling:
            raise how

    def _send_again(self, ignored: "sys.UnraisableHookArgs") -> None:
        """Sends a signal again if Python ignored its exception, also that of Prefect's handler. Python ignores exceptions in the
        finalizer of an object."""
        if ignored.exc_type.__name__ in (KeyboardInterrupt.__name__, Terminated.__name__, "TerminationSignal"):
            number = self.received[-1] if self.received else signal.SIGTERM
            if number == signal.SIGHUP:
                self._take(signal.SIGHUP)  # it is ignored after the first one
            self._ignored = number  # no more, as the next signal may come before this ends
        elif not self.received:
            sys.__unraisablehook__(ignored)


def exception_of(number: int) -> BaseException:
    """The exception that a signal raises."""
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated()


# A forked process would tell this one of its signals.
os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
