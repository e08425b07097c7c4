"""The name of a type says one thing, wherever it is read."""

import ast
from collections import defaultdict

from tests.conftest import REPOSITORY

READERS_OWN = {  # the records of a manifest, which the reader reads without pydantic
    *("Chat", "FileSet", "Files", "Form", "InputRows", "Manifest", "MixedSource", "Pack", "Reading", "SetPart"),
    *("Shuffle", "Source"),
}
LEFT = {"Parts", "Subject"}


def test_few_names_of_types_have_two_meanings() -> None:
    modules = defaultdict(set)
    for folder in ("tokenmill", "tokenmill_reader"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ClassDef):
                    modules[node.name.lstrip("_")].add(path.relative_to(REPOSITORY).as_posix())
    assert {name for name, places in modules.items() if len(places) > 1} == READERS_OWN | LEFT
