"""Notifies people of refreshes: once of each failure, of drift, and of the end of a failure."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import gethostname
from typing import Literal, Self

from tokenmill.errors import code_of, of_the_machine
from tokenmill.layout import NOTIFIED_FILE
from tokenmill.storage.atomic import write_atomic


@dataclass(frozen=True)
class Notice:
    """A message to people. `kind`: "well" if the refresh ended without failure or drift."""

    kind: Literal["failure", "drift", "well"]
    subject: str
    body: str

    @classmethod
    def of_failure(cls, root: Path, error: BaseException, how: str = "failed", reason: str | None = None) -> Self:
        """The notice of a refresh that ended with `error`. `reason`: replaces the error's text."""
        words = str(of_the_machine(error)) if isinstance(error, OSError) else str(error) or type(error).__name__
        return cls("failure", f"tokenmill refresh {how}", f"{_place(root)}: error[{code_of(error)}]: {reason or words}")

    @classmethod
    def of_end(cls, root: Path, past: list[str], did: str) -> Self:
        """The notice of a refresh that ended well, or with drift. `past`: the limits that were exceeded; `did`: what it did."""
        if past:
            return cls("drift", "tokenmill refresh: drift", f"{_place(root)}: {'; '.join(past)}")
        return cls("well", "tokenmill refresh works again", f"{_place(root)}: {did}")


def is_news(root: Path, notice: Notice) -> bool:
    """Whether to send the notice: the last one was different, and "well" is news only after a failure."""
    last = _last(root)
    if notice.kind == "well" and (last is None or last.kind != "failure"):
        (root / NOTIFIED_FILE).unlink(missing_ok=True)
        return False
    return notice != last


def keep(root: Path, notice: Notice) -> None:
    """Records the notice as sent."""
    with write_atomic(root / NOTIFIED_FILE) as path:
        path.write_text(json.dumps(asdict(notice), indent=1) + "\n", encoding="utf-8")


def _last(root: Path) -> Notice | None:
    try:
        return Notice(**json.loads((root / NOTIFIED_FILE).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):  # ValueError, TypeError: somebody has changed the file
        return None


def _place(root: Path) -> str:
    return f"{root.resolve()} on {gethostname()}"
