"""Finds the chat template that params.yaml names, and writes it beside the tokenizer."""

import json
from collections.abc import Mapping
from pathlib import Path

from tokenmill.chat.named import NAMED, TURN_ENDS, template_text
from tokenmill.config.chat_params import Chat
from tokenmill.errors import ParamsError, did_you_mean
from tokenmill.layout import TOKENIZER_DIRECTORY
from tokenmill.tokenizer.chat_files import (
    DEFAULT,
    TOOL_USE,
    chat_templates_of,
    places_of_templates,
    replace_chat_files,
    special_names,
)
from tokenmill.tokenizer.formats.named_tokens import NAMES
from tokenmill_reader.regular_files import read

OF_TOKENIZER = "tokenizer"


def templates_of(root: Path, name: str, directory: Path) -> dict[str, str]:
    """The chat templates of `encode.chat.template`: DEFAULT, and if a tokenizer has one, that for conversations with tools.
    `directory`: the tokenizer's. Raises ParamsError if there is none."""
    if name == OF_TOKENIZER:
        templates = chat_templates_of(directory)
        if not templates:
            raise ParamsError(
                "encode.chat.template",
                f"the tokenizer has no chat template: {TOKENIZER_DIRECTORY} has none in {places_of_templates()}.",
                f"Name one of {', '.join(NAMED)}, or a file.",
            )
        if templates.keys().isdisjoint((DEFAULT, TOOL_USE)):
            raise ParamsError(
                "encode.chat.template",
                f"the tokenizer has the chat templates {', '.join(sorted(templates))}, and none is named {DEFAULT} or "
                f"{TOOL_USE}, so which one to take is not known.",
                "Save the right one in a file, and name that file as the template.",
            )
        return templates
    if name in NAMED:
        return {DEFAULT: template_text(name)}
    path = root / name
    if not path.is_file():
        raise ParamsError(
            "encode.chat.template",
            f"found {name!r}; allowed: {OF_TOKENIZER}, {', '.join(NAMED)}, or a file relative to params.yaml.",
            did_you_mean(name, (OF_TOKENIZER, *NAMED)),
        )
    try:
        return {DEFAULT: read(path).decode()}
    except UnicodeDecodeError as error:
        raise ParamsError(
            f"encode.chat.template: {name}", f"not UTF-8 at byte {error.start}.", "Save it as UTF-8."
        ) from None


def ship_template(root: Path, chat: Chat | None, directory: Path) -> bool:
    """Writes the chat template, with its variables, and the names of special tokens beside the tokenizer in a directory, so that
    transformers' `apply_chat_template` gives the dataset's ids. False: the tokenizer keeps what it has.

    Raises ParamsError if there is no such template."""
    if chat is None or chat.template == OF_TOKENIZER:
        return False
    template = templates_of(root, chat.template, directory)[DEFAULT]
    names = {name: str(value) for name, value in chat.variables.items() if name in NAMES and value is not None}
    if chat.template in TURN_ENDS and "eos_token" not in special_names(directory):
        names.setdefault("eos_token", TURN_ENDS[chat.template])
    others = {name: value for name, value in chat.variables.items() if name not in NAMES}
    replace_chat_files(directory, _with_variables(template, others), names)
    return True


def _with_variables(template: str, variables: Mapping[str, object]) -> str:
    """The template with defaults for variables that its caller does not set. Jinja drops the line end after the last tag.

    >>> _with_variables("{{ thinks }}", {"thinks": None})
    '{% if thinks is not defined %}{% set thinks = none %}{% endif %}\\n{{ thinks }}'
    """
    if not variables:
        return template
    defaults = [
        f"{{% if {name} is not defined %}}{{% set {name} = {_literal(value)} %}}{{% endif %}}"
        for name, value in variables.items()
    ]
    return "".join(defaults) + "\n" + template


def _literal(value: object) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
