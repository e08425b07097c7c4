"""A section of params.yaml, with keys that say what they are."""

from collections.abc import Iterator
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from tokenmill.config.record import Record


class Section(Record):
    """Defaults are checked like values, because another key may not go with them."""

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_default=True)


def key(default: Any, meaning: str, example: str, **limits: Any) -> Any:
    """A key of a section. `default`: its value where params.yaml lacks it; `...`: it has to be there. `meaning`: its effect, as the
    reference page and `tokenmill params` show it. `example`: a value as YAML."""
    return Field(default=default, description=meaning, examples=[example], **limits)


def fields_of(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """The fields of a model by the names that they have in params.yaml."""
    for name, field in model.model_fields.items():
        yield field.alias or name, field


def model_of(kind: Any) -> Any:
    """The model of a section, of a key with keys of its own, or of named sources; None for other kinds."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next(filter(None, map(model_of, get_args(kind))), None)
