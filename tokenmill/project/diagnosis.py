"""The result of one check of `tokenmill doctor`."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check. `state`: a build runs despite a warning. `found`: what was found. `mend`: what to do, if known."""

    name: str
    state: Literal["ok", "warning", "wrong"]
    found: str
    mend: str | None = None
