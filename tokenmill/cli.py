"""The command line: tokenmill build, tokenmill check."""

import argparse
import dataclasses
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import tokenmill
from tokenmill.console import StageSummary, say, table
from tokenmill.errors import ParamsError, TokenmillError
from tokenmill.layout import PARAMS_FILE
from tokenmill.versions import quiet_environment

EXIT_USER_ERROR = 2

_GARBAGE_EVERY = 200_000  # objects made between two looks for cycles; importing makes many and drops none


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; what comes back is the exit code: 0 done, 2 an error that the user can mend, 130 or 143 ended by
    Ctrl-C or a termination signal."""
    gc.set_threshold(_GARBAGE_EVERY)
    asked = _parser().parse_args(arguments)
    if asked.command == "check":
        return _check(asked.tokenizer, asked.pattern, asked.json)
    quiet_environment()
    from tokenmill.build import EXIT_INTERRUPTED, EXIT_TERMINATED

    signal.signal(signal.SIGTERM, _terminate)
    try:
        _build(asked.params, asked.only, asked.force)
    except TokenmillError as error:
        print(f"tokenmill: error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    except OSError as error:
        print(
            f"tokenmill: error: {error.filename or 'a file'}: {error.strerror or error}. Mend that and build again.",
            file=sys.stderr,
        )
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        print("tokenmill: interrupted. Run `tokenmill build` to go on.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except _Terminated:
        print("tokenmill: terminated. Run `tokenmill build` to go on.", file=sys.stderr)
        return EXIT_TERMINATED
    return 0


def _check(path: Path, pattern: str | None, as_json: bool) -> int:
    from tokenmill.check_tokenizer import as_text, check_tokenizer

    try:
        found = check_tokenizer(path, pattern)
    except TokenmillError as error:
        found = {"usable": False, "error": str(error)}
    print(json.dumps(found, indent=2) if as_json else as_text(found, str(path)))
    return 0 if found["usable"] else EXIT_USER_ERROR


class _Terminated(BaseException):
    """A termination signal came."""


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise _Terminated


def _build(params: Path | None, only: str | None, force: bool) -> None:
    from flows.recipe import run_stages
    from tokenmill.build import settle_first, start, under_dvc
    from tokenmill.units import run_in_threads

    build = start(params or _find_params(), only, force, run_in_threads(1))
    if under_dvc() or build.params.run.engine == "inline":
        summaries = run_stages(dataclasses.replace(build, run_units=run_in_threads(build.workers)))
    else:
        summaries = settle_first(build)
        if len(summaries) < len(build.stages):
            summaries += _run_flow(build.root, build.workers, only, force)[len(summaries) :]
    if all(summary.action == "up to date" for summary in summaries):
        say("Nothing to do: every stage is up to date.")
    table(summaries)


def _run_flow(root: Path, workers: int, only: str | None, force: bool) -> list[StageSummary]:
    """The build as a Prefect flow; Prefect is imported here, because that alone takes longer than finding nothing to do."""
    from flows import server

    server.quiet_environment()
    server.end_orphan(root)
    if not os.environ.get("PREFECT_API_URL"):
        say("starting Prefect with a server of its own: ten seconds or more (none with run.engine: inline)")
    from flows.build import build, threads

    flow = build.with_options(task_runner=threads(workers))
    try:
        summaries: list[StageSummary] = flow(str(root), only, force)
    except TokenmillError:
        server.settle(0)
        raise
    server.settle(sum(summary.n_units or 0 for summary in summaries))
    return summaries


def _find_params() -> Path:
    """The params.yaml of this folder or the nearest one above it."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / PARAMS_FILE).is_file():
            return folder / PARAMS_FILE
    raise ParamsError(
        f"{here}: found no {PARAMS_FILE}, here or above. Go to a project's folder, or name one with --params."
    )


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
    build.add_argument("--force", action="store_true", help="run stages that are up to date, too")
    build.add_argument(
        "--params", type=Path, metavar="FILE", help="the params.yaml of the project to build (default: the nearest)"
    )
    check = commands.add_parser(
        "check",
        help="say what a tokenizer file is, what is odd about it, and which engine would run it",
        description="Loads a tokenizer as a build would, without a project. Exit code 0: usable, 2: refused.",
        epilog="example: tokenmill check tokenizer.json",
    )
    check.add_argument("tokenizer", type=Path, help="a directory with tokenizer.json, such a file, or a .tiktoken file")
    check.add_argument("--pattern", help="how a .tiktoken file's text is split: a name or a regex")
    check.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser
