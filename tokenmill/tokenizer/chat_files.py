"""Reads the files beside a tokenizer.json about conversations: the chat templates, and the names of special tokens in them.

transformers writes the default template into chat_template.jinja and others into additional_chat_templates. Earlier releases wrote
them into tokenizer_config.json, and processors into chat_template.json.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from tokenmill.errors import TokenizerError
from tokenmill.storage.atomic import remove_tree, write_atomic
from tokenmill.storage.followed import followed
from tokenmill.tokenizer.formats.folder import names_in
from tokenmill.tokenizer.formats.named_tokens import CONFIG_FILE
from tokenmill.tokenizer.formats.strict_json import object_of
from tokenmill_reader.regular_files import read

CHAT_TEMPLATE_FILE = "chat_template.jinja"
_MORE, _SUFFIX = "additional_chat_templates", ".jinja"
_PROCESSOR_FILE = "chat_template.json"
DEFAULT, TOOL_USE = "default", "tool_use"
"""The templates that transformers takes by itself: the second for conversations with tools, if there is one."""


def chat_templates_of(directory: Path) -> dict[str, str]:
    """The chat templates of the tokenizer in a directory by name, as transformers' AutoTokenizer has them; a single one is called
    default. Templates in files of their own come before those in tokenizer_config.json. Where there are neither, it is the one
    that AutoProcessor takes from chat_template.json.

    Raises TokenizerError if a file cannot be read, and StorageError for a link that leads out of the directory."""
    files = {path.name.removesuffix(_SUFFIX): path for path in sorted((directory / _MORE).glob(f"*{_SUFFIX}"))}
    if (single := directory / CHAT_TEMPLATE_FILE).is_file():
        files.setdefault(DEFAULT, single)
    if files:
        return {name: _text(followed(directory, path.relative_to(directory))) for name, path in files.items()}
    for name in (CONFIG_FILE, _PROCESSOR_FILE):
        if (found := object_of(directory / name).get("chat_template")) is not None:
            return _named(found, directory / name)
    return {}


def places_of_templates() -> str:
    """The files that a tokenizer can have chat templates in, in words."""
    return f"{CHAT_TEMPLATE_FILE}, {_MORE}, {CONFIG_FILE} or {_PROCESSOR_FILE}"


def _text(path: Path) -> str:
    try:
        return read(path).decode()
    except UnicodeDecodeError as error:
        raise TokenizerError(path, f"not UTF-8 at byte {error.start}.", "Save it as UTF-8.") from None


def _named(value: object, path: Path) -> dict[str, str]:
    """The templates of a value that is a text, a list of templates with their names, or an object with these names as keys."""
    if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        value = {entry.get("name"): entry.get("template") for entry in value}
    named = {}
    for name, template in (value if isinstance(value, dict) else {DEFAULT: value}).items():
        if not isinstance(name, str) or not isinstance(template, str):
            raise TokenizerError(
                f"{path}: chat_template",
                f"expected a text, or a list of objects with the texts name and template; found {name!r:.60} with "
                f"{type(template).__name__}.",
                "Correct it, or save the right template in a file, and name that file as the template.",
            )
        if "/" in name or name.startswith("."):
            raise TokenizerError(
                f"{path}: chat_template", f"expected names that a file can have; found {name!r:.60}.", "Rename it."
            )
        named[name] = template
    return named


def special_names(directory: Path) -> dict[str, str]:
    """The texts of the special tokens that the files of a tokenizer name, such as bos_token, by these names, as transformers gives
    them to a template.

    Raises TokenizerError if a file cannot be read."""
    return names_in(directory)


def chat_of(directory: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The chat templates and the names of special tokens of a tokenizer. Templates that cannot be used count as none: they do not
    keep a tokenizer from being used for texts."""
    try:
        templates = chat_templates_of(directory)
    except TokenizerError:
        templates = {}
    return templates, special_names(directory)


def copy_chat_templates(source: Path, directory: Path) -> None:
    """Copies the files in additional_chat_templates, if there are any."""
    for path in (source / _MORE).glob(f"*{_SUFFIX}"):
        with write_atomic(directory / _MORE / path.name) as partial:
            shutil.copyfile(followed(source, path.relative_to(source)), partial)


def copy_chat_files(source: Path, directory: Path) -> None:
    """Adds the chat templates and the names of special tokens of the tokenizer in the directory `source` to one that was saved in
    `directory`, in the files that transformers writes them to. Raises TokenizerError if they cannot be read."""
    templates, names = chat_of(source)
    for name, template in templates.items():
        path = directory / (CHAT_TEMPLATE_FILE if name == DEFAULT else f"{_MORE}/{name}{_SUFFIX}")
        with write_atomic(path) as partial:
            partial.write_text(template, encoding="utf-8", newline="")
    if names:
        config = object_of(directory / CONFIG_FILE) | names
        with write_atomic(directory / CONFIG_FILE) as partial:
            partial.write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def replace_chat_files(directory: Path, template: str, names: Mapping[str, str]) -> None:
    """Makes a template the only one of the tokenizer in a directory, and adds names of special tokens."""
    remove_tree(directory / _MORE)
    for name in (_PROCESSOR_FILE, CHAT_TEMPLATE_FILE):
        (directory / name).unlink(missing_ok=True)
    with write_atomic(directory / CHAT_TEMPLATE_FILE) as partial:
        partial.write_text(template, encoding="utf-8", newline="")
    config = object_of(directory / CONFIG_FILE)
    changed = {key: value for key, value in config.items() if key != "chat_template"} | dict(names)
    if changed != config:
        with write_atomic(directory / CONFIG_FILE) as partial:
            partial.write_text(json.dumps(changed, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
