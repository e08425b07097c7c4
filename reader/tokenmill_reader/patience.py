"""Tries again what a storage elsewhere did not do, with growing pauses."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long a storage elsewhere is asked again, from its first failure on."""

_PAUSE_S = (0.5, 5.0)  # the first and the longest


def with_patience(
    do: Callable[[], T],
    passing: type[Exception],
    say: Callable[[str], None],
    ended: Event | None = None,
    patience_s: float = PATIENCE_S,
) -> T:
    """The result of `do()`. As long as it raises `passing`, it is tried again for a minute, or until `ended`. It tells `say` once
    that it failed."""
    failed_s, pause_s, ended = None, _PAUSE_S[0], ended or Event()
    while True:
        try:
            return do()
        except passing as error:
            now_s = time.monotonic()
            if failed_s is None:
                failed_s = now_s
                if not ended.is_set():
                    what = str(error).partition(". ")[0]  # without what to do
                    say(f"{what}. Trying again for {patience_s:g} s.")
            if now_s - failed_s > patience_s or ended.wait(pause_s):
                raise
            pause_s = min(pause_s * 2, _PAUSE_S[1])
