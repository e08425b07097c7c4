"""The pydantic model that params.yaml, the lock and the JSON files of a build share."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A part of a file: it cannot be changed, has no unknown fields, and takes no value of another type."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)
