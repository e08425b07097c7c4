"""The examples in the library's docstrings run, and give what they show."""

import doctest
import importlib
import inspect
import pkgutil
from typing import Literal, get_args, get_origin

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


def test_the_values_that_an_argument_may_have_stand_in_its_help() -> None:
    n_values = 0
    for public in (getattr(tokenmill, name) for name in tokenmill.__all__):
        methods = [one for name, one in inspect.getmembers(public, inspect.isfunction) if not name.startswith("_")]
        for function in methods if inspect.isclass(public) else filter(inspect.isfunction, [public]):
            for parameter in inspect.signature(function).parameters.values():
                kind = getattr(inspect.getmodule(function), str(parameter.annotation), None)
                for value in get_args(kind) if get_origin(kind) is Literal else ():
                    assert value in (inspect.getdoc(function) or ""), (function, parameter.name, value)
                    n_values += 1
    assert n_values >= 15
