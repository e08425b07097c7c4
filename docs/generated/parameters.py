"""The page of params.yaml: keys, types and limits from the models, values and meanings from the file that `init` writes."""

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from ruamel.yaml import YAML

from docs.generated.tables import code, table
from tokenmill.config.params import Params
from tokenmill.format_facts import FORMATS

ROOT = Path(__file__).parent.parent.parent
_TEMPLATE = ROOT / "tokenmill/project/template"
_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false", types.NoneType: "null"}
_BY_CHECK = {  # what a validator takes that the type alone does not say
    "_as_list": "a glob, or a list of globs",
    "share_or_number": "a share from 0 to below 1, or a whole number",
    "is_format": "one of " + ", ".join(map(code, FORMATS)),
    "_as_parts": "a text, or a list of texts",
    "_rational": "globs, each with a whole number or a fraction as text",
}
_BOUNDS = {"ge": "{} or more", "gt": "more than {}", "le": "{} or less", "lt": "less than {}"}


def page() -> str:
    """A table of the keys for each section of the file."""
    text = (_TEMPLATE / "params.yaml").read_text(encoding="utf-8")
    meanings, values = meanings_of(text), values_of(text)
    parts = []
    for name, model in sections():
        parts += [f"## {name}\n", f"{_plain(model.__doc__)} {_runs_again(name, model)}\n"]
        if name in values:
            parts.append(f"A new project has {code(f'{name}: {values[name]}')}. {_sentence(meanings[name])}\n")
        rows = []
        for key, field in _fields(model):
            place = f"{name}.{key}"
            kind = _type(field.annotation, [field, *field.metadata])
            rows.append([code(key), _sentence(meanings.get(place, "")), kind, code(values.get(place, "")) or "–"])
        parts.append(table(["key", "meaning", "type", "in a new project"], rows))
    return "\n".join(parts)


def sections_again() -> str:
    """A table of the sections: their keys, and the stages that run again after a change of these."""
    found = [(name, stages, keys) for name, model in sections() for stages, keys in _keys_by_stages(name, model)]
    rows = [[code(name), ", ".join(map(code, keys)), stages] for name, stages, keys in found]
    return table(["section", "keys", "stages that run again"], rows)


def _runs_again(name: str, model: type[BaseModel]) -> str:
    """Which stages run again after a change in a section: those of most of its keys first, then those of the others."""
    most, *others = _keys_by_stages(name, model)
    said = [f"A change runs again: {most[0]}", *(f"of {', '.join(map(code, keys))}: {one}" for one, keys in others)]
    return "; ".join(said) + "."


def _keys_by_stages(name: str, model: type[BaseModel]) -> list[tuple[str, list[str]]]:
    """The keys of a section by the stages that a change of them runs again, most keys first."""
    by_stages: dict[str, list[str]] = {}
    for key, _ in _fields(model):
        by_stages.setdefault(", ".join(stages_after(f"{name}.{key}")) or "no stage", []).append(key)
    return sorted(by_stages.items(), key=lambda one: -len(one[1]))


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """The sections of the file, with the model of each."""
    for name, field in _fields(Params):
        kinds = [field.annotation, *get_args(field.annotation)]
        yield name, next(one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel))


def key_names() -> list[str]:
    """Every key as SECTION.KEY."""
    return [f"{name}.{key}" for name, model in sections() for key, _ in _fields(model)]


def meanings_of(text: str) -> dict[str, str]:
    """What params.yaml remarks on its keys, by SECTION.KEY, or by SECTION where that is null. Of keys that it lacks: the
    descriptions of their fields."""
    found = {f"{name}.{key}": field.description or "" for name, model in sections() for key, field in _fields(model)}
    for place, _, remark in _lines(text):
        if remark:
            found[place] = f"{found.get(place, '')} {remark}".strip()
    return found


def values_of(text: str) -> dict[str, str]:
    """The values of its keys as they are written, by the same names."""
    return {place: value for place, value, _ in _lines(text) if value}


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    """Of each line that belongs to a key: which key, its value, and the remark."""
    section = place = ""
    for line in text.splitlines():
        before, _, remark = line.partition("#")
        if found := re.match(r"(  )?(\w+):\s*(.*)", before):
            section = section if found[1] else found[2]
            place = f"{section}.{found[2]}" if found[1] else section
            if found[1] or found[3]:
                yield place, found[3].strip(), remark.strip()
            else:
                place = ""  # what is remarked beside the name of a section, its model says
        elif place and remark:
            yield place, "", remark.strip()


def stages_after(key: str) -> list[str]:
    """The stages that a change of SECTION.KEY makes run again: those of dvc.yaml that read it, and what follows them."""
    pipeline = _yaml("dvc.yaml")["stages"]
    again: list[str] = []
    made: set[str] = set()
    for name, stage in pipeline.items():
        reads = any(key == one or key.startswith(f"{one}.") for one in stage.get("params", ()))
        if reads or made & set(stage["deps"]):
            again.append(name)
            made |= set(stage.get("outs", ()))
    return again


def _yaml(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((_TEMPLATE / name).read_text(encoding="utf-8"))


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        yield field.alias or name, field


def _type(kind: Any, limits: list[Any]) -> str:
    """A type with its limits, in words."""
    for one in limits:
        if (check := getattr(getattr(one, "func", None), "__name__", "")) in _BY_CHECK:
            return _BY_CHECK[check]
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return _type(inner, [*more, *limits])
    if get_origin(kind) in (Union, types.UnionType):
        parts = [one for one in get_args(kind) if one is not type(None)]
        words = " or ".join(_type(one, [] if i else limits) for i, one in enumerate(parts))
        return words + (", or null" if type(None) in get_args(kind) else "")
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(code(str(one)) for one in get_args(kind))
    if get_origin(kind) is list:
        return f"list of: {_type(get_args(kind)[0], [])}"
    if get_origin(kind) is dict:
        return f"keys ({_type(get_args(kind)[0], [])}) with values ({_type(get_args(kind)[1], [])})"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "keys: " + ", ".join(
            f"{code(name)} ({_type(one.annotation, list(one.metadata))})" for name, one in _fields(kind)
        )
    bounds = [
        form.format(f"{value:,}") for name, form in _BOUNDS.items() if (value := _limit(limits, name)) is not None
    ]
    words = _KINDS.get(kind, getattr(kind, "__name__", str(kind)))
    return f"{words}, {' and '.join(bounds)}" if bounds else words


def _limit(limits: list[Any], name: str) -> Any:
    return next((found for one in limits if (found := getattr(one, name, None)) is not None), None)


def _sentence(words: str) -> str:
    """A remark as a sentence; a value that it begins with stays as it is."""
    begins_with_value = re.match(r"[\w.]+:", words)
    words = words if begins_with_value else words[:1].upper() + words[1:]
    words = re.sub(r"(\{(?:[^{}]|\{[^{}]*\})*\}|(?:data/|s3://)\S*[*]\S*)", lambda found: code(found[1]), words)
    return words + ("" if not words or words.endswith(".") else ".")


def _plain(docstring: str | None) -> str:
    return " ".join((docstring or "").split())
