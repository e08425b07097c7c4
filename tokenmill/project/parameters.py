"""The keys of params.yaml with type, default, meaning and example, for the reference page and `tokenmill params`."""

import json
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from ruamel.yaml import YAML

from tokenmill.config.params import Params
from tokenmill.config.section import fields_of, model_of
from tokenmill.format_facts import FORMATS

_PIPELINE = Path(__file__).parent / "template/dvc.yaml"
_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false", types.NoneType: "null"}
_BY_CHECK = {  # what a validator takes that the type alone does not say
    "_as_list": "a glob, or a list of globs",
    "_licenses": "a licence, or a list of licences",
    "share_or_number": "a share from 0 to below 1, or a whole number",
    "is_format": "one of " + ", ".join(f"`{name}`" for name in FORMATS),
    "_as_parts": "a text, or a list of texts",
    "_rational": "globs, each with a whole number or a fraction as text",
}
_BOUNDS = {"ge": "{} or more", "gt": "more than {}", "le": "{} or less", "lt": "less than {}"}
_PLAIN = re.compile(r"(?!(?:true|false|null|yes|no|on|off)$)[A-Za-z_][\w./*-]*")
"""Texts that YAML reads without quotes."""


@dataclass(frozen=True)
class Key:
    """A key of params.yaml. `type`: what it may be, in words. `default` and `example` are YAML; a key without a default has to be
    there. `stages`: those that a change runs again."""

    type: str
    default: str | None
    meaning: str
    example: str
    stages: tuple[str, ...]


@cache
def keys() -> dict[str, Key]:
    """Every key by its name with dots, such as encode.pack.length, in the order of the sections. Those of named sources begin with
    sources.NAME."""
    return dict(_keys_of(Params, ""))


def sections() -> dict[str, str]:
    """What each section is about, by its name."""
    return {name: " ".join((model_of(field.annotation).__doc__ or "").split()) for name, field in fields_of(Params)}


def _keys_of(model: type[BaseModel], around: str) -> Iterator[tuple[str, Key]]:
    for name, field in fields_of(model):
        place = around + name
        if field.description:
            default = None if field.is_required() else _as_yaml(field.default)
            kind = _type(field.annotation, [field, *field.metadata])
            yield place, Key(kind, default, field.description, field.examples[0], stages_after(place))
        inner = model_of(field.annotation)
        if inner is not None:
            is_named = get_origin(field.annotation) is dict
            yield from _keys_of(inner, f"{place}.NAME." if is_named else f"{place}.")


def _as_yaml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_as_yaml, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value)


@cache
def _pipeline() -> dict[str, Any]:
    stages: dict[str, Any] = YAML(typ="safe", pure=True).load(_PIPELINE.read_text(encoding="utf-8"))["stages"]
    return stages


def stages_after(key: str) -> tuple[str, ...]:
    """The stages that a change of a key makes run again: those of dvc.yaml that read it, and what follows them."""
    again: list[str] = []
    outputs: set[str] = set()
    for name, stage in _pipeline().items():
        reads = any(key == param or key.startswith(f"{param}.") for param in stage.get("params", ()))
        if reads or outputs & set(stage["deps"]):
            again.append(name)
            outputs |= set(stage.get("outs", ()))
    return tuple(again)


def _type(kind: Any, limits: list[Any]) -> str:
    """A type with its limits, in words."""
    for limit in limits:
        if (check := getattr(getattr(limit, "func", None), "__name__", "")) in _BY_CHECK:
            return _BY_CHECK[check]
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return _type(inner, [*more, *limits])
    if get_origin(kind) in (Union, types.UnionType):
        parts = [choice for choice in get_args(kind) if choice is not type(None)]
        words = " or ".join(_type(one, [] if i else limits) for i, one in enumerate(parts))
        return words + (", or null" if type(None) in get_args(kind) else "")
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{choice}`" for choice in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "the keys below"
    if get_origin(kind) is dict and model_of(kind):
        return "names, each with the keys below"
    if get_origin(kind) is list:
        return f"list of: {_type(get_args(kind)[0], [])}"
    if get_origin(kind) is dict:
        return f"keys ({_type(get_args(kind)[0], [])}) with values ({_type(get_args(kind)[1], [])})"
    bounds = [
        form.format(f"{value:,}") for name, form in _BOUNDS.items() if (value := _limit(limits, name)) is not None
    ]
    words = _KINDS.get(kind, getattr(kind, "__name__", str(kind)))
    return f"{words}, {' and '.join(bounds)}" if bounds else words


def _limit(limits: list[Any], name: str) -> Any:
    return next((found for limit in limits if (found := getattr(limit, name, None)) is not None), None)
