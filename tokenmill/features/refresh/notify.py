"""Notifies people of refreshes through a notification block of Prefect."""

from contextlib import suppress
from pathlib import Path
from typing import cast

import httpx
from prefect.blocks.abstract import NotificationBlock, NotificationError
from prefect.blocks.core import Block
from prefect.exceptions import PrefectException

from tokenmill.console import say
from tokenmill.features.refresh.notices import Notice, is_news, keep
from tokenmill.orchestration.server import Server


def notify(root: Path, block: str | None, notice: Notice) -> None:
    """Sends a notice through the block TYPE/NAME, if one is given and the notice is news. A failure to send is reported and stops
    nothing; the next refresh tries again."""
    if block is None or not is_news(root, notice):
        return
    try:
        loaded = cast("NotificationBlock", Block.load(block))
        with loaded.raise_on_failure():  # without it, most blocks of Prefect are silent when nothing was sent
            loaded.notify(notice.body, notice.subject)  # type: ignore[unused-coroutine]
    except NotificationError as error:  # what the service answered; as text, the error is empty
        said = "; ".join(error.log.split("\n")).strip("; ")
        say(
            f"notification {block}: could not be sent: {said or 'no reason was given'}. Check the settings of the block."
        )
    except (ValueError, RuntimeError, PrefectException, httpx.HTTPError, OSError) as error:  # RuntimeError: no server
        home = Server.current().home
        how = "" if home is None or not isinstance(error, ValueError) else f" {home.how_to_save(block)}"
        say(f"notification {block}: could not be sent: {str(error).rstrip('.')}.{how}")
    else:
        with suppress(OSError):  # a full disk, of which the notice may tell
            keep(root, notice)
