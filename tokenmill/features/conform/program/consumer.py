"""What each library is asked through: a function that makes its encoders, in a module of consumers/."""

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

Encoders = dict[str, Callable[[Any], Iterable[int] | None]]
"""What a library gives ids for. text: a text in which special tokens are text. special: one in which they become their ids.
token: a special token alone, for a library that finds none in a text; None: it has no such token. chat: the messages of a
conversation."""

Library = Any
"""The module of a library, whose types are unknown here."""

WORDS = {
    "text": "texts",
    "special": "texts with special tokens as ids",
    "token": "special tokens",
    "chat": "conversations",
}


class Cannot(Exception):
    """A library that cannot be compared, and why."""


class Subject(NamedTuple):
    """A tokenizer. `vectors`: lists of name, text or messages, and ids, by the names of `Encoders`. `pattern`: the regexes of
    its split; None: unknown."""

    folder: str
    pattern: list[str] | None
    special_tokens: dict[str, int]
    vectors: dict[str, list[tuple[str, Any, list[int]]]]

    def file(self, name: str) -> str:
        """The path of the tokenizer's file of this name. Raises Cannot if it has none."""
        path = Path(self.folder, name)
        if not path.is_file():
            raise Cannot(f"the tokenizer has no {name}")
        return str(path)


class Consumer(NamedTuple):
    """A library. `module`: what is imported. `make`: what makes its encoders of this module. `package`: its name as it is
    installed; None: as the module's. `folder`: the environment variable that names the folder where it is installed; None: it is
    imported as usual."""

    module: str
    make: Callable[[Library, Subject], Encoders]
    package: str | None = None
    folder: str | None = None


CONSUMERS: dict[str, Consumer] = {}
"""The libraries by name. Each module of consumers/ adds its own."""


def first_module(name: str, former: str) -> Library:
    """A module, or the one that has its functions in earlier releases."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(error.name or "-"):
            raise
    return importlib.import_module(former)


def encoders_of(tokenizer: Any) -> Encoders:
    """The encoders of a tokenizer of transformers, which servers use, too."""
    return {
        "text": lambda text: tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"],
        "special": lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
        "chat": lambda said: tokenizer.apply_chat_template(said, tokenize=True, return_dict=True)["input_ids"],
    }
