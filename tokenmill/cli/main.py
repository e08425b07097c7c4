"""The command line: build, status, check, and the commands of project, versions, refresh."""

import argparse
import dataclasses
import json
import os
import select
import signal
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Timer
from types import FrameType

import tokenmill
from tokenmill.cli import project, refresh, versions
from tokenmill.cli.versions import find_params
from tokenmill.console import StageSummary, say, table
from tokenmill.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_UNREAD, Terminated, TokenmillError, of_the_machine
from tokenmill.layout import LAST_BUILD_FILE
from tokenmill.storage.atomic import write_atomic
from tokenmill.versioning.dvc_repository import quiet_environment

EXIT_USER_ERROR = 2

_AGAIN_S = 0.05

_signals: list[int] = []
"""Those that came: a library that catches everything makes an error of its own of one (fsspec, that the file is not there)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; what comes back is the exit code: 0 done, 2 an error that the user can mend, 130 or 143 ended by
    Ctrl-C, or by a termination signal or the end of its terminal, 141 nobody reads what it prints."""
    _signals.clear()
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
        signal.signal(signal.SIGHUP, _hang_up)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        asked = _parser().parse_args(arguments)
        quiet_environment()
        return asked.run(asked) or 0
    except Exception as error:
        if not _signals:
            if isinstance(error, BrokenPipeError) and _is_unread():
                return EXIT_UNREAD
            if not isinstance(error, TokenmillError | OSError):
                raise
            words = of_the_machine(error) if isinstance(error, OSError) else error
            print(f"tokenmill: error: {words}", file=sys.stderr)
            return EXIT_USER_ERROR
        _pass_over_halves()
        is_interrupted = _signals[-1] == signal.SIGINT
    except (KeyboardInterrupt, Terminated) as ended:
        _pass_over_halves()
        is_interrupted = isinstance(ended, KeyboardInterrupt)
    # What was remembered of files may not have been forgotten yet.
    again = "build --rehash" if "--rehash" in (arguments or sys.argv[1:]) else "build"
    print(
        f"tokenmill: {'interrupted' if is_interrupted else 'terminated'}. Run `tokenmill {again}` to go on.",
        file=sys.stderr,
    )
    return EXIT_INTERRUPTED if is_interrupted else EXIT_TERMINATED


def _pass_over_halves() -> None:
    """An object of a library that a signal cut while it was made cannot close itself; Python would print that as an error."""
    sys.unraisablehook = lambda _: None


def _check(asked: argparse.Namespace) -> int:
    from tokenmill.analysis.inspect import as_text, check_tokenizer

    try:
        found = check_tokenizer(asked.tokenizer, asked.pattern)
    except TokenmillError as error:
        found = {"usable": False, "error": str(error)}
    print(json.dumps(found, indent=2) if asked.json else as_text(found, str(asked.tokenizer)))
    return 0 if found["usable"] else EXIT_USER_ERROR


def _status(asked: argparse.Namespace) -> int:
    from tokenmill.config.params import load_params
    from tokenmill.pipeline.status import as_text, standing_of

    path = asked.params or find_params()
    root = path.absolute().parent
    params = load_params(path)  # which refuses what a build would
    if params.tokenizer is not None:
        from tokenmill.config.lockfile import read_pin
        from tokenmill.versioning.import_tokenizer import refuse_changed

        pin = read_pin(root)
        if pin is not None and pin.asked == params.tokenizer:
            refuse_changed(root, pin)
    found = standing_of(root)
    print(json.dumps([dataclasses.asdict(one) for one in found], indent=2) if asked.json else as_text(found))
    return 2 if any(one.would_run for one in found) else 0


def _terminate(number: int, _frame: FrameType | None) -> None:
    _note(number)
    raise Terminated


def _is_unread() -> bool:
    """Whether nobody reads what is printed."""
    printed = select.poll()
    printed.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in printed.poll(0))


def _hang_up(_number: int, _frame: FrameType | None) -> None:
    """As _terminate; what is still said goes nowhere when the terminal has ended, where writing fails."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for stream in (1, 2):
        with suppress(OSError):  # it is closed
            if stat.S_ISCHR(os.fstat(stream).st_mode):  # `isatty` denies it of a terminal that has ended
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(nowhere, stream)
                os.close(nowhere)
    _note(signal.SIGTERM)
    raise Terminated


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _note(number)
    raise KeyboardInterrupt


def _note(number: int) -> None:
    _signals.append(number)
    sys.unraisablehook = _send_again


def _send_again(ignored: "sys.UnraisableHookArgs") -> None:
    """What is raised while an object closes itself, Python ignores: a signal that came just then comes again."""
    if ignored.exc_type in (KeyboardInterrupt, Terminated):
        again = Timer(_AGAIN_S, os.kill, (os.getpid(), _signals[-1]))
        again.daemon = True
        again.start()


def _build(asked: argparse.Namespace) -> None:
    from tokenmill.pipeline.build import alone, root_of, start, under_dvc
    from tokenmill.stages.recipe import run_inline

    path = asked.params or find_params()
    with alone(root_of(path), asked.wait, asked.force, asked.rehash):
        build = start(path, asked.only, asked.force, asked.rehash)
        if under_dvc() or build.params.run.engine == "inline":
            summaries = run_inline(build)
        else:
            from tokenmill.orchestration.session import run_in_flow

            summaries = run_in_flow(build)
        if is_new := any(summary.action != "up to date" for summary in summaries):
            _keep(summaries, build.root / LAST_BUILD_FILE)
    if not is_new:
        say("Nothing to do: every stage is up to date.")
    table(summaries)


def _keep(summaries: Sequence[StageSummary], path: Path) -> None:
    """The table as JSON, for programs that watch what builds cost; outside DVC, since times differ from run to run."""
    with write_atomic(path) as partial:
        text = json.dumps([dataclasses.asdict(summary) for summary in summaries], indent=2)
        partial.write_text(text + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tokenmill", description="Builds a tokenizer and a token dataset from documents."
    )
    parser.add_argument("--version", action="version", version=f"tokenmill {tokenmill.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser(
        "build",
        help="run the stages that are not up to date",
        description="Runs count, train-vocab, encode and validate, as far as they are not up to date, and records them with DVC.",
        epilog="example: tokenmill build --only encode",
    )
    build.add_argument("--only", metavar="STAGE", help="this stage alone: count, train-vocab, encode or validate")
    build.add_argument(
        "--force",
        action="store_true",
        help="do what is up to date or finished again, too, and have DVC read inputs and outputs again",
    )
    build.add_argument(
        "--rehash", action="store_true", help="read files that seem unchanged, too, instead of trusting their times"
    )
    build.add_argument("--wait", action="store_true", help="when another build of the project runs, wait until it ends")
    build.add_argument(
        "--params", type=Path, metavar="FILE", help="the params.yaml of the project to build (default: the nearest)"
    )
    build.set_defaults(run=_build)
    status = commands.add_parser(
        "status",
        help="say what a build would do now, and why",
        description="Runs nothing. Exit code 0: every stage is up to date, 2: a build would do something.",
        epilog="example: tokenmill status --json",
    )
    status.add_argument("--json", action="store_true", help="print JSON instead of text")
    status.add_argument("--params", type=Path, metavar="FILE", help="the project's params.yaml (default: the nearest)")
    status.set_defaults(run=_status)
    project.add_commands(commands)
    versions.add_commands(commands)
    refresh.add_commands(commands)
    check = commands.add_parser(
        "check",
        help="say what a tokenizer file is, what is odd about it, and which engine would run it",
        description="Loads a tokenizer as a build would, without a project. Exit code 0: usable, 2: refused.",
        epilog="example: tokenmill check tokenizer.json",
    )
    check.add_argument("tokenizer", type=Path, help="a directory with tokenizer.json, such a file, or a .tiktoken file")
    check.add_argument("--pattern", help="how a .tiktoken file's text is split: a name or a regex")
    check.add_argument("--json", action="store_true", help="print JSON instead of text")
    check.set_defaults(run=_check)
    return parser
