"""The pydantic model that params.yaml, the lock and the JSON files of a build share."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A section of a file: frozen, without unknown fields, with strict types."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)
