"""Runs one command and gives its exit code."""

import argparse
import logging
import os
import re
import resource
import select
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import TextIO

import tokenmill
from tokenmill.cli import build, dataset, help, params, project, versions
from tokenmill.cli.answer import STREAMS, Answer, Stdout, message_of, print_error, print_result
from tokenmill.cli.log_records import without_passwords_in_logs
from tokenmill.cli.parser import Commands, Parser, command_of
from tokenmill.cli.signals import Ending, exception_of
from tokenmill.console import console
from tokenmill.errors import (
    EXIT_DEFECT,
    EXIT_DONE,
    EXIT_ERROR,
    EXIT_UNREAD,
    ParamsError,
    ProjectCodeError,
    Terminated,
    TokenmillDeprecationWarning,
    TokenmillError,
    UsageError,
    code_of,
)
from tokenmill.features import PARTS, load, load_of_others, parts_of_others
from tokenmill.layout import PARAMS_FILE
from tokenmill_reader.shown import as_shown, size, without_passwords

_ADDRESSES_MIN = 1_500_000_000  # a small build aborted with 1,000 MB
_OF_ALL_COMMANDS = ("completion",)
_SHOW_WARNING = warnings.showwarning
_ORCHESTRATORS = re.compile("-packages/(prefect|distributed|ray)/")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Gives the exit code, see `tokenmill.errors.EXIT_CODES`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    stdout = Stdout()
    ending = Ending(command_of(given), given, stdout)
    with ending.taken():
        try:
            return _run(ending.command, given, stdout)
        except Exception as error:  # noqa: BLE001 — an unexpected error is a defect, printed with its traceback
            error = _of_settings(_of_project(error))
            if not ending.received:
                if isinstance(error, BrokenPipeError) and _is_stdout_closed():
                    return EXIT_UNREAD
                return _print_error(error, ending.command, given)
            ended = exception_of(ending.received[-1])
        except (KeyboardInterrupt, Terminated) as signalled:
            ended = signalled
        _ignore_unclosable()
        return ending.tell(ended)


def _run(command: str | None, given: list[str], stdout: Stdout) -> int:
    """Runs the command and prints its answer. Gives its exit code."""
    is_json = "--json" in given
    if is_json and "--version" in given:
        print_result(command, {"version": tokenmill.__version__})
        return EXIT_DONE
    for one in given:
        if not _is_utf8(one):
            raise UsageError(f"argument {one!r}: expected UTF-8. Correct it, or rename the file or folder.")
    options = make_parser(given[:1]).parse_args(given)
    _set_up(options)
    with stdout.to_stderr() if is_json and command not in STREAMS else nullcontext():
        answer: Answer = options.run(options)
        # With --json, the report for people goes to standard error.
        if is_json and not answer.is_asked_for and console.level >= 0:
            answer.show()
    if is_json:
        print_result(command, answer.result)
    elif answer.is_asked_for or console.level >= 0:
        answer.show()
    if sys.stdout is not None:  # None: it was closed
        sys.stdout.flush()  # a full disk is an error of the command
    return answer.code


def _is_utf8(text: str) -> bool:
    """Whether an argument or variable was valid UTF-8: Python keeps other bytes as halves of pairs, which cannot be encoded."""
    return text == text.encode(errors="ignore").decode()


def _set_up(options: argparse.Namespace) -> None:
    """Applies the options that every command has. Raises ParamsError if the process may have too little memory for its libraries,
    some of which abort without a message then."""
    may_have, _ = resource.getrlimit(resource.RLIMIT_AS)
    if may_have != resource.RLIM_INFINITY and may_have < _ADDRESSES_MIN:
        raise ParamsError(
            "memory",
            f"this process may have {size(may_have)} of addresses (ulimit -v); Python, its libraries and their "
            f"threads need {size(_ADDRESSES_MIN)} or more.",
            "Raise that limit, and limit memory by run.memory_mb_max.",
            code="TM110",
        )
    for name in ("TMPDIR", "TEMP", "TMP"):  # pyarrow opens no file there, and `verify` would call the dataset wrong
        if not _is_utf8(os.environ.get(name, "")):
            raise ParamsError(
                f"the environment's {name}", "expected a path that is valid UTF-8.", "Name another folder."
            )
    from tokenmill.versioning.dvc_repository import quiet_environment

    is_debug = getattr(options, "debug", False)
    console.level = (
        -1 if getattr(options, "quiet", False) else 2 if is_debug else int(getattr(options, "verbose", False))
    )
    without_passwords_in_logs()
    if is_debug:
        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
    quiet_environment()
    warnings.simplefilter("always", TokenmillDeprecationWarning)
    warnings.showwarning = _show_warning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints once, in a line, what is deprecated; any other warning as Python does. Python's own "once" forgets what it showed
    whenever a library changes the filters."""
    if issubclass(category, TokenmillDeprecationWarning):
        _say_once(f"warning: {message}")
    else:
        _SHOW_WARNING(without_passwords(str(message)), category, filename, lineno, file, line)


@cache
def _say_once(line: str) -> None:
    console.say(line)


def _of_project(error: Exception) -> Exception:
    """A ProjectCodeError for an error that a flow or task of the project raised; any other error as it is, such as a full disk,
    or one of Prefect."""
    if isinstance(error, TokenmillError | BrokenPipeError | MemoryError) or code_of(error) == "TM601":
        return error
    frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno))
    package = Path(tokenmill.__file__).parent
    for name, line in reversed(frames):
        path = Path(name)
        if path.is_relative_to(package) or _ORCHESTRATORS.search(name):
            break
        if path.parent.name in ("flows", "tasks") and (path.parents[1] / PARAMS_FILE).is_file():
            what = f"{type(error).__name__}: {error}".rstrip(": ") + ". This is code of your project."
            own = ProjectCodeError(f"{path}, line {line}", what.splitlines(), "Correct it, or what it reads.")
            own.__cause__ = error
            return own
    return error


def _of_settings(error: Exception) -> Exception:
    """A ParamsError for an error over a file of fsspec's settings, which DVC and Prefect make fsspec read when they are imported;
    any other error as it is."""
    for frame, _line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "set_conf_files" and frame.f_globals["__name__"] == "fsspec.config":
            path = Path(frame.f_locals["cdir"], frame.f_locals.get("fn", ""))
            reason = " ".join(str(error).split())
            return ParamsError(
                path, f"fsspec's settings cannot be read: {reason}.", "Correct the file, or move it away."
            )
    return error


def _print_error(error: Exception, command: str | None, given: Sequence[str]) -> int:
    """Prints the error to standard error and, with --json, also as JSON. Gives the exit code."""
    is_defect = not isinstance(error, TokenmillError | OSError | MemoryError)
    if is_defect or "--debug" in given:
        frames = "".join(traceback.format_exception(error)).splitlines()
        print(without_passwords(as_shown(frames)), file=sys.stderr)
    if isinstance(error, UsageError):
        print(error.usage, file=sys.stderr, end="")
    code = code_of(error)
    kind = f"a defect of tokenmill: {type(error).__name__}: " if is_defect else ""
    first, *more = error.lines if isinstance(error, TokenmillError) else [message_of(error)]
    print(as_shown([f"tokenmill: error[{code}]: {kind}{first}", *more]), file=sys.stderr)
    if sys.stderr.isatty():
        print(f"`tokenmill explain {code}` says more.", file=sys.stderr)
    if "--json" in given:
        with suppress(OSError):  # which may be the error: nothing can be written there
            print_error(command, error)
    return EXIT_DEFECT if is_defect else EXIT_ERROR


def _ignore_unclosable() -> None:
    """Silences errors of objects that cannot close themselves because a signal interrupted their construction."""
    sys.unraisablehook = lambda _: None


def _is_stdout_closed() -> bool:
    """Whether the reader of standard output has closed it."""
    printed = select.poll()
    printed.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in printed.poll(0))


def make_parser(first: Sequence[str] = ()) -> Parser:
    """The parser of the whole command line. With `first`, the first argument of a command line, it lacks the commands of features
    that this command line does not need, so that their modules are not imported."""
    parser = Parser(prog="tokenmill", description="Builds a tokenizer and a token dataset from documents.")
    parser.add_argument("--version", action="version", version=f"tokenmill {tokenmill.__version__}")
    commands = Commands(parser)
    build.add_commands(commands)
    dataset.add_commands(commands)
    project.add_commands(commands)
    versions.add_commands(commands)
    help.add_commands(commands)
    params.add_commands(commands)
    # One function may add several commands, and stands in the table for each of them.
    for add_commands in dict.fromkeys(_further_commands(first, parser.commands)):
        add_commands(commands)
    return parser


def _further_commands(first: Sequence[str], own: Collection[str]) -> list[Callable[[Commands], None]]:
    """The functions of features and of other packages that add the commands which a command line needs. `own`: the commands that
    are there already. Raises UsageError for a part of another package that cannot be used."""
    parts = PARTS["commands"]
    [command] = first or [""]
    if command in parts:
        return [load(parts[command])]
    if command in own and command not in _OF_ALL_COMMANDS:
        return []
    others = parts_of_others("commands", {*own, *parts})
    if command in others:
        return [load_of_others(others[command])]
    # The help shows all of them, and the nearest name to a mistyped one may be anyone's.
    return [*map(load, parts.values()), *map(load_of_others, others.values())]
