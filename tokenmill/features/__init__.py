"""The features, a folder each, and the one table of what they add to the rest.

A feature adds its part at a door, a place where the rest takes parts of a kind without knowing whose they are. The table says,
by door and then by name, which object of which module is that part. Its module is imported when the name is asked for, so that
a feature costs nothing where it is not used.
"""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

PARTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "commands": {  # the function that adds the command to the command line
            "choose": "tokenmill.features.plan.commands:add_commands",
            "plan": "tokenmill.features.plan.commands:add_commands",
            "view": "tokenmill.features.view.commands:add_commands",
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
