"""The key train_vocab.parity of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from tokenmill.config.record import Record
from tokenmill.config.source_params import Globs

Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]


class Parity(Record):
    """How groups take turns in learning. `global_merges`: the first merges, chosen by all groups together. `variant`: whether the
    worst group always goes next (base), or is passed over after more than `alpha` / groups of the last `window_size` turns
    (window). What makes a group the worst: `dev`, files with the same content in the language of each group, of which it has the
    most tokens; or else `ratio`, over which its bytes per token are the lowest. Without either, every ratio is 1."""

    variant: Literal["base", "window"] = "base"
    global_merges: int = Field(default=0, ge=0)
    window_size: int = Field(default=100, ge=1)
    alpha: Ratio = 2.0
    ratio: dict[str, Ratio] | None = Field(default=None, min_length=1)
    dev: dict[str, Globs] | None = Field(default=None, min_length=1)

    @field_validator("dev")
    @classmethod
    def _one_measure(cls, dev: dict[str, list[str]] | None, info: ValidationInfo) -> dict[str, list[str]] | None:
        if dev is not None and info.data.get("ratio") is not None:
            raise ValueError("found together with ratio; allowed: only one of the two")
        return dev

    @property
    def window(self) -> tuple[int, float] | None:
        """The number of turns looked at, and alpha; None: the worst group always goes next."""
        return (self.window_size, self.alpha) if self.variant == "window" else None
