"""Notifies people through a notification block of Prefect."""

import httpx
from prefect.blocks.core import Block
from prefect.exceptions import PrefectException

from tokenmill.console import say


def notify(block: str | None, subject: str, body: str) -> None:
    """Sends a message through the block TYPE/NAME, if one is given. A failure to send is reported and stops nothing."""
    if block is None:
        return
    try:
        Block.load(block).notify(body, subject)  # type: ignore[union-attr]
    except (ValueError, RuntimeError, PrefectException, httpx.HTTPError, OSError) as error:  # RuntimeError: no server
        say(f"notification {block}: could not be sent: {error}")
