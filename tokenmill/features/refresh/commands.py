"""The commands refresh and serve."""

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tokenmill.cli.answer import Answer
from tokenmill.cli.versions import find_params
from tokenmill.console import say
from tokenmill.errors import BusyError, ParamsError, Terminated, TokenmillError
from tokenmill.features.refresh.notices import Notice, is_news
from tokenmill.quantities import number_of
from tokenmill_reader.child_python import command_of

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands

_CRON_FIELDS = 5


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    refresh = commands.add_parser(
        "refresh",
        help="update the data, build, and publish the dataset's next version",
        description="Updates imports, builds with the pinned tokenizer, measures drift, commits dvc.lock, and publishes the "
        "dataset's next patch version if it changed. The refresh is skipped if a build or another refresh runs.",
        epilog="example: tokenmill refresh --json",
    )
    refresh.set_defaults(run=_refresh)
    serve = commands.add_parser(
        "serve",
        help="refresh on a schedule, in one process",
        description="Runs `tokenmill refresh` on a schedule until Ctrl-C; it needs no server, work pool or worker. With "
        "--json it prints one line with a JSON object per refresh.",
        epilog='example: tokenmill serve --cron "0 2 * * *" --timezone Europe/Berlin',
    )
    serve.add_argument("--cron", required=True, metavar="CRON", help="minute, hour, day of month, month, day of week")
    serve.add_argument(
        "--timezone", default="UTC", metavar="ZONE", help="time zone of the schedule, like Europe/Berlin (default: UTC)"
    )
    serve.set_defaults(run=_serve)


def _refresh(_asked: argparse.Namespace) -> Answer:
    from tokenmill.config.load_params import load_params

    path = find_params()
    if load_params(path).run.engine == "inline":
        return _answer(_refresh_inline(path))
    from tokenmill.orchestration.session import start_server

    server = start_server(path.parent)
    from tokenmill.orchestration.project_flows import load_flow

    try:
        flow = load_flow(path.parent, "refresh", str(path.parent))
    except TokenmillError as error:
        from tokenmill.features.refresh.notify import notify

        block = load_params(path).refresh.notify
        with server.serving():
            notify(path.parent, block, Notice.of_failure(path.parent, error))
        raise
    done: Any = None
    with server.serving():
        done = flow(str(path.parent))
    return _answer(server.outcome if done is None else done)  # None: the server went away before the end


def _answer(done: Any) -> Answer:
    """The answer of a refresh. It prints nothing, because the refresh has already printed what it did."""
    return Answer(done, lambda: None, is_asked_for=False)


def _refresh_inline(path: Path) -> dict[str, Any]:
    """Runs a refresh without Prefect, which is imported only to notify."""
    from tokenmill.config.load_params import load_params
    from tokenmill.features.refresh.refresh import refresh, skipped
    from tokenmill.pipeline.alone import alone
    from tokenmill.pipeline.start import start
    from tokenmill.stages.recipe import run_inline

    root, block = path.parent, load_params(path).refresh.notify
    try:
        with alone(root, wait=False):
            done = refresh(start(path, None, False, False), run_inline)
    except BusyError as busy:
        say(f"refresh: skipped: {busy.holder}")
        return skipped(busy.holder)
    except Exception as error:
        _notify(root, block, Notice.of_failure(root, error))
        raise
    _notify(root, block, Notice.of_end(root, done.past, str(done)))
    say(f"refresh: {done}")
    return done.as_json()


def _notify(root: Path, block: str | None, notice: Notice) -> None:
    """Sends a notice from a refresh without Prefect, with a server for this alone."""
    if block is None or not is_news(root, notice):
        return
    from tokenmill.orchestration.session import start_server

    try:
        with start_server(root).serving():
            from tokenmill.features.refresh.notify import notify

            notify(root, block, notice)
    except TokenmillError as error:
        say(f"notification {block}: could not be sent: {error}")


def _serve(options: argparse.Namespace) -> Answer:
    """Runs each refresh in its own process, so that its leftovers and failures do not affect the next one."""
    root = find_params().parent
    is_json = getattr(options, "json", False)
    flags = [f"--{name}" for name in ("json", "quiet", "verbose", "debug") if getattr(options, name, False)]
    for next_time in times(options.cron, options.timezone, datetime.now(UTC)):
        if (wait_s := seconds_until(next_time, datetime.now(UTC))) < 0:
            continue  # the previous refresh took longer than that
        say(f"serve: the next refresh is at {next_time:%F %H:%M %Z}")
        time.sleep(wait_s)
        command = command_of("tokenmill", "refresh", *flags)
        with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE if is_json else None) as run:
            try:
                printed, _ = run.communicate()
            except (KeyboardInterrupt, Terminated):
                run.terminate()  # lets it clean up; subprocess.run would kill it
                run.wait()
                raise
        if printed:
            with suppress(json.JSONDecodeError):  # the refresh was killed while it printed
                print(json.dumps(json.loads(printed)), flush=True)
        say(f"serve: the refresh of {next_time:%F %H:%M %Z} {'is done' if run.returncode == 0 else 'failed'}")
    return Answer({"did": "the schedule has ended"}, lambda: None, is_asked_for=False)


def times(cron: str, zone: str, now: datetime) -> Iterator[datetime]:
    """The times of a schedule after `now`, in its time zone. A time of day that a change of the clocks skips is replaced by the
    first moment after the change, and of two that it repeats the first is taken. Raises ParamsError."""
    from cronsim import CronSim, CronSimError

    expected = "Expected five fields, like 0 2 * * * for every night at two."
    if (
        n_fields := len(cron.split())
    ) != _CRON_FIELDS:  # of six fields, other programs take the first or the last as seconds
        raise ParamsError(f"--cron {cron!r}", f"found {number_of(n_fields, 'field')}. {expected}")
    try:
        return iter(CronSim(cron, now.astimezone(ZoneInfo(zone))))
    except CronSimError as error:
        raise ParamsError(f"--cron {cron!r}", f"{error}. {expected}") from None
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name is a folder of zones, such as Europe
        raise ParamsError(
            f"--timezone {zone!r}", "there is no such time zone; expected one like Europe/Berlin."
        ) from None


def seconds_until(at: datetime, now: datetime) -> float:
    """The seconds from `now` to `at`. Python subtracts two times of one zone as if its clocks never changed."""
    return (at.astimezone(UTC) - now.astimezone(UTC)).total_seconds()
