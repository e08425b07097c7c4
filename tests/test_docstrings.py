"""The examples in the library's docstrings run, and give what they show."""

import doctest
import importlib
import pkgutil

import pytest

import tokenmill
import tokenmill_reader

MODULES = [
    name
    for package in (tokenmill, tokenmill_reader)
    for name in (
        package.__name__,
        *(one.name for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")),
    )
]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith(("__main__", "_core"))])
def test_examples_give_what_they_show(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
