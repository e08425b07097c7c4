"""The pydantic model that params.yaml, the lock and the JSON files of a build share."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A section of a file: frozen, without unknown fields, with strict types."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)


def as_yaml(value: object) -> str:
    """A value as YAML writes it."""
    by_identity = {None: "null", True: "true", False: "false"}
    return by_identity[value] if value is None or isinstance(value, bool) else f"{value!r:.80}"
