"""What `tokenmill doctor` finds."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One check. `state`: warning is what a build can do without; `mend`: what to do about it, where that is known."""

    name: str
    state: Literal["ok", "warning", "wrong"]
    found: str
    mend: str | None = None
