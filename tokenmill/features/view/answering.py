"""Answers the page's questions in a process of its own, since nothing else ends a computation that a damaged file makes endless.

`python -m tokenmill.features.view.answering` reads lines of JSON, and answers each with one: first what `DatasetView` and the
limit are, answered by {} or an error, and then the name and the parameters of each question, answered by the status and the answer.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tokenmill.child_limits import how_ended
from tokenmill.errors import TokenmillError, of_the_machine
from tokenmill_reader.child_python import command_of
from tokenmill_reader.shown import as_shown

SECONDS_MAX = 30.0
"""The time limit for one answer."""
_LOAD_S_MAX = 300.0
_END_S = 5.0


class Answering:
    """The process that answers for a dataset. `dataset`, `tokenizer`, `other`: see DatasetView. Only one thread at a time may ask.
    Raises what DatasetView raises."""

    def __init__(
        self, dataset: Path, tokenizer: Path | None = None, other: Path | None = None, seconds_max: float = SECONDS_MAX
    ) -> None:
        paths = [None if path is None else str(path.absolute()) for path in (dataset, tokenizer, other)]
        self._given = [*paths, seconds_max]
        self.seconds_max: float = seconds_max
        self._process: subprocess.Popen[str] | None = None
        self._start()

    def ask(self, name: str, question: dict[str, str]) -> tuple[int, Any]:
        """The status and the answer to a question. A process that takes too long is ended, and the next question starts another."""
        try:
            if self._process is None:
                self._start()
            status, answer = self._told([name, question])
        except EOFError as ended:
            return 503, {"error": f"{ended} Run `tokenmill verify`, which finds damaged files."}
        return status, answer

    def close(self) -> None:
        """Ends the process."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None and process.stdout is not None
        process.kill()
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait(_END_S)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            command_of("tokenmill.features.view.answering"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="ascii",
            start_new_session=True,  # Ctrl-C is for the waiting process, which ends this one
        )
        try:
            error = self._told(self._given)
        except EOFError as ended:
            raise TokenmillError(str(self._given[0]), str(ended)) from None
        if error:
            self.close()
            raise TokenmillError(error["where"], error["what"], error["fix"], code=error["code"])

    def _told(self, line: Any) -> Any:
        """What the process answers to a line. Raises EOFError, which says why, if it has ended."""
        process = self._process  # Ctrl-C may end it meanwhile
        assert process is not None and process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
        answer = process.stdout.readline()
        if answer.endswith("\n"):
            return json.loads(answer)
        code = process.wait()
        self.close()
        if code == -signal.SIGALRM:
            raise EOFError(f"the answer takes more than {self.seconds_max:g} s.")
        raise EOFError(f"the process that reads the dataset ended with {how_ended(code)}.")


def main() -> None:
    """Answers the lines on standard input."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    dataset, tokenizer, other, seconds_max = json.loads(sys.stdin.readline())
    signal.setitimer(signal.ITIMER_REAL, _LOAD_S_MAX)  # its signal ends the process, whatever it does
    from tokenmill.features.view.dataset_view import Asked, DatasetView

    try:
        view = DatasetView(Path(dataset), *(None if path is None else Path(path) for path in (tokenizer, other)))
    except (TokenmillError, OSError) as error:
        told = error if isinstance(error, TokenmillError) else of_the_machine(error)
        what = {"where": told.where, "what": told.what.split("\n"), "fix": told.fix, "code": told.code}
        _put(answers, what)
        return
    _put(answers, {})
    for line in sys.stdin:
        name, question = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, seconds_max)
        status: int
        answer: Any
        try:
            status, answer = 200, getattr(view, name)(Asked(question))
        except (TokenmillError, OSError, ValueError, LookupError) as error:
            status, answer = 400, {"error": as_shown(str(error).split("\n"))}
        _put(answers, [status, answer])


def _put(answers: IO[str], answer: Any) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
