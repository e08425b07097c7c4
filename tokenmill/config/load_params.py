"""Reads params.yaml once, and explains every mistake in it before any work."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import (
    ValidationError,
)

from tokenmill.config.params import Params
from tokenmill.config.record import as_yaml
from tokenmill.config.section import fields_of, model_of
from tokenmill.config.training_params import TrainVocab
from tokenmill.config.yaml_mistakes import mistake
from tokenmill.errors import ParamsError, did_you_mean, nearest
from tokenmill.storage.urls import refuse_password
from tokenmill.storage.writable import refuse_unusable_path
from tokenmill_reader.regular_files import read

_COMMENT = re.compile(r"(^|\s)#.*")


def load_params(path: Path) -> Params:
    """Loads and checks a params.yaml.

    Raises one ParamsError that lists every wrong key with the file, the section, what was found and what is allowed.
    """
    try:
        found = _read_yaml(path)
        return Params.model_validate(found, context={"special_tokens": _special_tokens(found)})
    except ValidationError as error:
        # Misspelled keys come first. The missing key that such a key was meant for is not listed again.
        details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
        meant = [_meant(detail) for detail in details if detail["type"] == "extra_forbidden"]
        details = [detail for detail in details if detail["type"] != "missing" or detail["loc"] not in meant]
        code = _CODES.get(details[0]["type"], "TM102")
        errors = [ParamsError(*_explain(detail, path), code=code) for detail in details]
        raise (errors[0] if len(errors) == 1 else ParamsError("", [str(one) for one in errors], code=code)) from None


def _special_tokens(params: dict[str, Any]) -> list[Any] | None:
    """The unchecked special tokens of params.yaml, or their default; None if no tokenizer is trained."""
    train_vocab = params.get("train_vocab", {})
    default = TrainVocab.model_fields["special_tokens"].default
    found = train_vocab.get("special_tokens", default) if isinstance(train_vocab, dict) else None
    return found if params.get("tokenizer") is None and isinstance(found, list) else None


def _read_yaml(path: Path) -> Any:
    from ruamel.yaml.error import YAMLError

    from tokenmill.config.bounded_yaml import BoundsError

    text = ""
    refuse_unusable_path(path.absolute().parent)
    try:
        text = read(path).decode()
        content = _parsed(text)
        for i, line in enumerate(text.splitlines(), 1):
            refuse_password(f"{path}, line {i}", _COMMENT.sub("", line))
    except OSError as error:
        raise ParamsError(
            path, f"cannot be read: {error.strerror}. Expected a file of parameters there.", code="TM104"
        ) from None
    except UnicodeDecodeError as error:
        raise ParamsError(path, f"not UTF-8 at byte {error.start}.", "Save it as UTF-8.", code="TM104") from None
    except YAMLError as error:
        words = f"{error}. Shorten it." if isinstance(error, BoundsError) else mistake(text, error)
        raise ParamsError(path, words, code="TM104") from None
    if not isinstance(content, dict):
        raise ParamsError(
            path, f"expected the sections {', '.join(_keys(Params))}; found {content!r:.60}.", code="TM104"
        )
    return content


@lru_cache(maxsize=1)  # a build checks before and after each stage for changes, and parsing takes 30 ms
def _parsed(text: str) -> Any:
    from tokenmill.config import bounded_yaml

    return bounded_yaml.load(text)


def _meant(unknown: Any) -> tuple[Any, ...] | None:
    """The location of the known key that an unknown one was probably meant for, or None."""
    *section, key = unknown["loc"]
    near = nearest(str(key), _keys(_section_of(unknown["loc"])))
    return (*section, near) if near else None


def _explain(detail: Any, path: Path) -> tuple[str, str, str]:
    """Explains one error of pydantic: where it is, what is wrong, and what to do."""
    parts = [str(part) for part in detail["loc"] if part != "[key]"]  # pydantic marks an error in a key itself so
    place, limits = ": ".join(filter(None, (str(path), ".".join(parts)))), detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            allowed = _keys(_section_of(detail["loc"]))
            return place, f"unknown key; allowed: {', '.join(allowed)}.", did_you_mean(str(detail["loc"][-1]), allowed)
        case "missing" if parts[0] == "sources" and parts[-1] == "glob":
            return place, "missing.", f"Add the glob of the source's files, like data/raw/{parts[1]}/**/*."
        case "missing":
            allowed = _choices(detail["loc"])
            if allowed:
                return place, f"missing; allowed: {', '.join(allowed)}.", "Add it."
            key = ".".join([parts[0], "NAME", *parts[2:]] if parts[0] == "sources" else parts)
            return place, "missing.", f"Add it: `tokenmill params {key}` explains it."
        case "value_error":
            message = str(limits["error"])
            if parts and not message.startswith("found"):
                return str(path), f"{'.'.join(parts)}.{message}.", ""
            return place, f"{message}.", ""
        case kind if kind in _ALLOWED:
            allowed_values = _ALLOWED[kind].format(**limits)
        case _:
            allowed_values = detail["msg"].removeprefix("Input should be ")
    return place, f"found {as_yaml(detail['input'])}; allowed: {allowed_values}.", ""


_CODES = {"extra_forbidden": "TM101", "missing": "TM103"}  # by pydantic's type of error
_ALLOWED = {  # by pydantic's type of error
    "model_type": "a section with keys",
    "dict_type": "a section with keys",
    "list_type": "a list, like [a, b]",
    "too_long": "a list of at most {max_length}",
    "string_type": "a text (in quotes where YAML reads another type)",
    "int_type": "a whole number",
    "int_from_float": "a whole number, written only with digits",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "too_short": "{min_length} or more of them",
    "string_too_short": "a text that is not empty",
    "string_pattern_mismatch": "what the regex {pattern} matches",
}


def _section_of(location: tuple[str | int, ...]) -> Any:
    """The section that a key is in."""
    section: Any = Params
    parts = iter(location[:-1])
    for part in parts:
        kind = dict(fields_of(section))[str(part)].annotation
        section = model_of(kind)
        if get_origin(kind) is dict:
            next(parts, None)  # the name of the section
    return section


def _choices(location: tuple[str | int, ...]) -> list[str]:
    """The values that a key may have, where they are a few words."""
    kind = dict(fields_of(_section_of(location)))[str(location[-1])].annotation
    return [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []


def _keys(model: Any) -> list[str]:
    return [name for name, _ in fields_of(model)]
