"""The commands build and status."""

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.cli.versions import find_params
from tokenmill.console import console, say
from tokenmill.errors import EXIT_DONE, EXIT_NO, CorpusError
from tokenmill.format_facts import FORMATS
from tokenmill.layout import DOCUMENT_STAGES, LAST_BUILD_FILE, PAGE_FILE, REPORT_FILE, TOKENS_DIRECTORY
from tokenmill.storage.atomic import write_atomic
from tokenmill.summary import StageSummary, table
from tokenmill_reader.shown import as_shown

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands
    from tokenmill.config.params import Params


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    build = commands.add_parser(
        "build",
        help="run the stages that are not up to date",
        description="Runs those of count, train-vocab, encode and validate that are not up to date, and records them with DVC.",
        epilog="example: tokenmill build --only encode",
    )
    build.add_argument("--only", metavar="STAGE", help="build only this stage: count, train-vocab, encode or validate")
    build.add_argument(
        "--force",
        action="store_true",
        help="run stages and units again even if they are up to date; DVC hashes inputs and outputs again",
    )
    build.add_argument(
        "--rehash", action="store_true", help="hash every file again, even if its length and times are unchanged"
    )
    build.add_argument("--wait", action="store_true", help="if another build of the project runs, wait until it ends")
    build.add_argument(
        "--params", type=Path, metavar="FILE", help="the params.yaml of the project to build (default: the nearest)"
    )
    build.set_defaults(run=_build)
    status = commands.add_parser(
        "status",
        help="say what a build would do now, and why",
        description="Runs nothing. With -v it names the files that changed since the dataset was made. Exit code 0: every stage "
        "is up to date, 1: a build would do something.",
        epilog="example: tokenmill status -v",
    )
    status.add_argument("--params", type=Path, metavar="FILE", help="the project's params.yaml (default: the nearest)")
    status.set_defaults(run=_status)


def _build(options: argparse.Namespace) -> Answer:
    from tokenmill.pipeline.alone import alone, under_dvc
    from tokenmill.pipeline.rates import keep_rates
    from tokenmill.pipeline.start import root_of, start
    from tokenmill.stages.recipe import run_inline

    path, start_s = options.params or find_params(), time.monotonic()
    with alone(root_of(path), options.wait, options.force, options.rehash):
        build = start(path, options.only, options.force, options.rehash)
        if under_dvc() or build.params.run.engine == "inline":
            summaries = run_inline(build)
        else:
            from tokenmill.orchestration.session import run_in_flow

            summaries = run_in_flow(build)
        if is_new := any(summary.action != "up to date" for summary in summaries):
            _save(summaries, build.root / LAST_BUILD_FILE)
            keep_rates(build.root, build.params, summaries)
    if not is_new:
        say("Nothing to do: every stage is up to date.")
    stages = [dataclasses.asdict(one) for one in summaries]

    def show() -> None:
        table(summaries)
        if sys.stdout.isatty() and not options.only:
            print("\n".join(_what_next(build.root, build.params)))
            print(_time_line(time.monotonic() - start_s, summaries))

    return Answer({"up_to_date": not is_new, "stages": stages}, show, is_asked_for=False)


def _time_line(seconds: float, summaries: Sequence[StageSummary]) -> str:
    in_stages = sum(summary.seconds or 0 for summary in summaries)
    return f"time     {seconds:.1f} s, of which {max(seconds - in_stages, 0):.1f} are Prefect's, DVC's and the start's"


def _what_next(root: Path, params: "Params") -> list[str]:
    """Lines for a person: where the dataset is, how a training job reads it, where the report is, and what to do next."""
    tokens, encode = os.path.relpath(root / TOKENS_DIRECTORY), params.encode
    split = next(iter(encode.splits), None)
    own = [FORMATS[name].opened_by for name in encode.formats]
    if own[0] is not None and None not in own:
        how = own[0].format(path=str(Path(tokens, encode.formats[0], split or "")))
    else:
        how = f"tokenmill.open({tokens!r}{f', {split!r}' if split else ''})"
        if encode.pack is not None and encode.pack.output == "index":
            how += ".packed()"
    report = os.path.relpath(root / (PAGE_FILE if params.run.report_page else REPORT_FILE))
    return [
        f"dataset  {as_shown(tokens)}",
        f"read it  {as_shown(how)}",
        f"report   {as_shown(report)}",
        "next     tokenmill view shows it, git commit keeps it",
    ]


def _save(summaries: Sequence[StageSummary], path: Path) -> None:
    """Saves the table as JSON, for programs that track the cost of builds. DVC does not track it, because times vary."""
    with write_atomic(path) as file:
        words = json.dumps([dataclasses.asdict(summary) for summary in summaries], indent=2)
        file.write_text(words + "\n", encoding="utf-8")


def _status(options: argparse.Namespace) -> Answer:
    from tokenmill.config.load_params import load_params
    from tokenmill.corpus.source_shards import find_documents, hidden_files, unread_files, words_of_unread
    from tokenmill.pipeline.status import lines_of, status_of

    path = options.params or find_params()
    root = path.absolute().parent
    params = load_params(path)  # raises the same errors as a build
    if params.tokenizer is not None:
        from tokenmill.config.lockfile import read_pin
        from tokenmill.versioning.import_tokenizer import refuse_changed

        pin = read_pin(root)
        if pin is not None and pin.asked == params.tokenizer:
            refuse_changed(root, pin)
    statuses = status_of(root, params)
    would_run = any(status.would_run for status in statuses)
    refused: list[str] = []
    if would_run:
        from tokenmill.stages.mistakes import refuse_mistakes_of

        refuse_mistakes_of(root, params)  # as a build does
        if (
            next(status.stage for status in statuses if status.would_run) in DOCUMENT_STAGES
        ):  # else a step may make the documents
            try:
                find_documents(root, params)
            except CorpusError as error:
                refused = [str(error)]
    stages = [{**dataclasses.asdict(status), "would_run": status.would_run} for status in statuses]
    unread = unread_files(root, params)
    result = {"would_run": would_run, "stages": stages, "unread_files": unread, "refused": refused}
    lines = [*lines_of(statuses), *(f"Do not build yet: {reason}" for reason in refused)]
    if console.level >= 1:
        from tokenmill.pipeline.status import files_since_the_dataset

        files, more = files_since_the_dataset(root, params)
        result["files"], lines = files, lines + more
    if words := words_of_unread(unread, hidden_files(root, params)):
        lines = [*lines, words]
    return text(result, lines, EXIT_NO if would_run else EXIT_DONE)
