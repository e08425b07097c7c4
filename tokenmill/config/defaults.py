"""Fills in the keys that a section of params.yaml lacks, as DVC knows only what is written."""

from collections.abc import Mapping
from typing import Any, get_origin

from tokenmill.config.params import Params
from tokenmill.config.section import fields_of, model_of


def with_defaults(name: str, value: Any) -> Any:
    """The value of a section or key of params.yaml with the defaults of the keys that it lacks. `name`: with dots.

    >>> with_defaults("encode.pack", {"length": 8, "mode": "none"})["long"], with_defaults("count.by", "lang")
    ('split', 'lang')
    """
    kind: Any = Params
    for part in name.split("."):
        fields = dict(fields_of(model_of(kind))) if model_of(kind) else {}
        if part not in fields:
            return value
        kind = fields[part].annotation
    return _filled(kind, value)


def _filled(kind: Any, value: Any) -> Any:
    model = model_of(kind)
    is_named = get_origin(kind) is dict  # a named source without a key is not one with its default
    if model is None or is_named or not isinstance(value, Mapping):
        return value
    fields = dict(fields_of(model))
    defaults = {name: field.default for name, field in fields.items() if not field.is_required()}
    return {
        name: _filled(fields[name].annotation, inner) if name in fields else inner
        for name, inner in {**defaults, **value}.items()
    }
