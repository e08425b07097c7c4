"""The key train_vocab.parity of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from tokenmill.config.section import Section, key
from tokenmill.config.source_params import Globs

Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]


class Parity(Section):
    """How groups take turns in learning."""

    variant: Literal["base", "window"] = key(
        "base",
        "base: the worst group always goes next. window: it is passed over after more than alpha / groups of the last window_size "
        "turns",
        "window",
    )
    global_merges: int = key(0, "how many first merges are chosen by all groups together", "1000", ge=0)
    window_size: int = key(100, "with window: the number of turns looked at", "200", ge=1)
    alpha: Ratio = key(
        2.0, "with window: the share of these turns that a group may have, times the number of groups", "1.5"
    )
    ratio: dict[str, Ratio] | None = key(
        None,
        "numbers over which the worst group has the lowest bytes per token; null without dev: 1 for each group",
        "{en: 4.2, de: 4.6}",
        min_length=1,
    )
    dev: dict[str, Globs] | None = key(
        None,
        "instead of ratio: files with the same content in the language of each group, of which the worst has the most tokens. Name "
        "them in dvc.yaml's deps of train-vocab, too; null: none",
        "{en: dev/en.txt, de: dev/de.txt}",
        min_length=1,
    )

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
