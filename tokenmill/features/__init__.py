"""The features, a folder each, and the one table of what they add to the rest.

A feature adds its part at a door, a place where the rest takes parts of a kind without knowing whose they are. The table says,
by door and then by name, which object of which module is that part. Its module is imported when the name is asked for, so that
a feature costs nothing where it is not used. Other packages add parts by entry points of the group tokenmill.DOOR.
"""

from collections.abc import Collection, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tokenmill.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PARTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "before_publish": {  # a function that refuses a version: (root, params) -> None, raises VersionsError
            "conform": "tokenmill.features.conform.before_publish:refuse_other_ids",
        },
        "beside": {  # by its name, the function that writes a file into a tokenizer's folder: (folder) -> the file
            "conform.py": "tokenmill.features.conform.program.write:write_program",
        },
        "commands": {  # the function that adds the command to the command line
            "check": "tokenmill.features.convert.commands:add_commands",
            "choose": "tokenmill.features.plan.commands:add_commands",
            "conform": "tokenmill.features.conform.commands:add_commands",
            "convert": "tokenmill.features.convert.commands:add_commands",
            "diff": "tokenmill.features.diff.commands:add_commands",
            "download": "tokenmill.features.share.commands:add_commands",
            "draft-vocab": "tokenmill.features.draft.commands:add_commands",
            "gc": "tokenmill.features.share.commands:add_commands",
            "locate": "tokenmill.features.view.commands:add_commands",
            "plan": "tokenmill.features.plan.commands:add_commands",
            "refresh": "tokenmill.features.refresh.commands:add_commands",
            "remap": "tokenmill.features.trim.commands:add_commands",
            "serve": "tokenmill.features.refresh.commands:add_commands",
            "upload": "tokenmill.features.share.commands:add_commands",
            "view": "tokenmill.features.view.commands:add_commands",
        },
        "elsewhere": {  # by a program, what goes wrong with a tokenizer in it: (Form) -> sentences
            "llama.cpp": "tokenmill.features.convert.formats.elsewhere:of_llama_cpp",
            "transformers": "tokenmill.features.convert.formats.elsewhere:of_transformers",
        },
        "filters": {  # what makes the filter of the value that `source` has under its name, unless that is null or 0
            "min_chars": "tokenmill.features.min_chars.filter:MinChars",
        },
        "imported": {  # what flows and scripts of projects import from modules of the kernel
            "convert": "tokenmill.features.convert.convert:convert",
            "run_refresh": "tokenmill.features.refresh.flow:run_refresh",
            "tell_of_failure": "tokenmill.features.refresh.flow:tell_of_failure",
        },
        "lists": {  # a class of DocumentLists, with read(root, value, has_ids), where `source` has the value under its name
            "drop": "tokenmill.features.drop.filter.drop_list:DropList",
        },
        "tokenizer_formats": {  # the files of a tokenizer in a format: (Form) -> bytes by name, raises TokenizerError
            "gguf": "tokenmill.features.convert.formats.gguf:files_of",
            "sentencepiece": "tokenmill.features.convert.formats.sentencepiece_model:files_of",
            "tekken": "tokenmill.features.convert.formats.tekken:files_of",
            "vocab-merges": "tokenmill.features.convert.formats.vocab_merges:files_of",
        },
        "verify": {  # a function that gives a dataclass with lines(), which `verify` has in its result under this name; or None
            "takedown": "tokenmill.features.drop.takedown:takedown",
        },
    }
)
"""By door, and then by name, the part as "module:object"."""


def load(part: str) -> Any:
    """The object that an entry of the table names. It imports the module.

    >>> load("tokenmill.layout:PARAMS_FILE")
    'params.yaml'
    """
    module, _, name = part.partition(":")
    return getattr(import_module(module), name)


def every_part(door: str) -> list[Any]:
    """All parts at a door, those of other packages last. It imports their modules. Raises UsageError as `parts_of_others` does."""
    parts = PARTS[door]
    return [*map(load, parts.values()), *map(load_of_others, parts_of_others(door, parts).values())]


def folders(*doors: str) -> list[str]:
    """The folders of tokenmill's own parts at these doors, below that of the package.

    >>> folders("beside")
    ['features/conform/program']
    """
    modules = [part.partition(":")[0].split(".") for door in doors for part in PARTS[door].values()]
    return [*dict.fromkeys("/".join(names[1:-1]) for names in modules)]


def parts_of_others(door: str, taken: Collection[str]) -> dict[str, "EntryPoint"]:
    """By name, the parts that other installed packages add at a door. It imports none of them.

    Raises UsageError if a name is in `taken`, the names that tokenmill has itself, or if two packages add the same one.
    """
    from importlib.metadata import entry_points

    parts: dict[str, EntryPoint] = {}
    for part in entry_points(group=f"tokenmill.{door}"):
        if part.name in taken or part.name in parts:
            owner = "tokenmill" if part.name in taken else f"the package {_name_of(parts[part.name])}"
            raise UsageError(
                f"the package {_name_of(part)} adds {part.name!r} to tokenmill.{door}, a name that {owner} has already. "
                "Uninstall that package, or ask its authors for another name."
            )
        parts[part.name] = part
    return parts


def load_of_others(part: "EntryPoint") -> Any:
    """The object that another package adds. It imports the package's module. Raises UsageError if it cannot be imported."""
    try:
        return part.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{part.value!r}, which the package {_name_of(part)} adds to {part.group}, cannot be imported: {error}. "
            "Install the version of that package that goes with this tokenmill, or uninstall it."
        ) from error


def package_of(part: "EntryPoint") -> str:
    """The name and the version of the package that adds a part."""
    return _name_of(part) if part.dist is None else f"{part.dist.name} {part.dist.version}"


def _name_of(part: "EntryPoint") -> str:
    return "of no name" if part.dist is None else part.dist.name
