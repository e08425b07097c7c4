"""What the files beside a tokenizer.json say of conversations: the chat template, and the names of special tokens in it.

transformers writes the template into chat_template.jinja, and earlier releases into tokenizer_config.json.
"""

import json
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.storage.atomic import read, write_atomic

CONFIG_FILE = "tokenizer_config.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_DEFAULT = "default"


def chat_template_of(directory: Path) -> str | None:
    """The chat template of the tokenizer in a directory; of several with names, the one called default. None if it has none.

    Raises TokenizerError if a file cannot be read."""
    path = directory / CHAT_TEMPLATE_FILE
    if path.is_file():
        try:
            return read(path).decode()
        except UnicodeDecodeError as error:
            raise TokenizerError(f"{path}: not UTF-8 at byte {error.start}. Save it as UTF-8.") from None
    found = _config(directory).get("chat_template")
    if isinstance(found, list):
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get(_DEFAULT)
        if found is None:
            raise TokenizerError(
                f"{directory / CONFIG_FILE}: chat_template: expected one with the name {_DEFAULT}; found "
                f"{', '.join(map(repr, named)) or 'none'}. Save the right one in a file, and name that file as the template."
            )
    if found is not None and not isinstance(found, str):
        raise TokenizerError(
            f"{directory / CONFIG_FILE}: chat_template: expected a text; found {type(found).__name__}."
        )
    return found


def special_names(directory: Path) -> dict[str, str]:
    """The texts of the special tokens that tokenizer_config.json names, such as bos_token, by these names."""
    found, config = {}, _config(directory)
    for name in _NAMES:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found


def chat_of(directory: Path) -> tuple[str | None, dict[str, str]]:
    """The chat template and the names of special tokens of a tokenizer. A template that cannot be used counts as none: it does not
    keep a tokenizer from being used for texts."""
    try:
        template = chat_template_of(directory)
    except TokenizerError:
        template = None
    return template, special_names(directory)


def copy_chat_files(source: Path, directory: Path) -> None:
    """Adds the chat template and the names of special tokens of the tokenizer in the directory `source` to one that was saved in
    `directory`. Raises TokenizerError if they cannot be read."""
    template, names = chat_of(source)
    if template is not None:
        with write_atomic(directory / CHAT_TEMPLATE_FILE) as partial:
            partial.write_text(template, encoding="utf-8", newline="")
    if names:
        config = _config(directory) | names
        with write_atomic(directory / CONFIG_FILE) as partial:
            partial.write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG_FILE
    if not path.is_file():
        return {}
    try:
        found = json.loads(read(path))
    except ValueError as error:
        raise TokenizerError(f"{path}: expected JSON: {error}. Fetch or make the tokenizer again.") from None
    if not isinstance(found, dict):
        raise TokenizerError(f"{path}: expected an object of JSON; found {type(found).__name__}.")
    return found
