"""The examples in the library's docstrings run, and give what they show."""

import doctest
import importlib
import pkgutil

import pytest

import tokenmill

MODULES = ["tokenmill", *(one.name for one in pkgutil.walk_packages(tokenmill.__path__, "tokenmill."))]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith(("__main__", "_core"))])
def test_examples_give_what_they_show(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
