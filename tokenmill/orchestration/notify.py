"""Notifies people of refreshes through a notification block of Prefect."""

from contextlib import suppress
from pathlib import Path

import httpx
from prefect.blocks.core import Block
from prefect.exceptions import PrefectException

from tokenmill.console import say
from tokenmill.orchestration.server import Server
from tokenmill.stages.notices import Notice, is_news, keep


def notify(root: Path, block: str | None, notice: Notice) -> None:
    """Sends a notice through the block TYPE/NAME, if one is given and the notice is news. A failure to send is reported and stops
    nothing; the next refresh tries again."""
    if block is None or not is_news(root, notice):
        return
    try:
        Block.load(block).notify(notice.body, notice.subject)  # type: ignore[union-attr]
    except (ValueError, RuntimeError, PrefectException, httpx.HTTPError, OSError) as error:  # RuntimeError: no server
        home = Server.current().home
        how = "" if home is None or not isinstance(error, ValueError) else f" {home.how_to_save(block)}"
        say(f"notification {block}: could not be sent: {error}{how}")
    else:
        with suppress(OSError):  # no space for it, which may be what the notice tells
            keep(root, notice)
