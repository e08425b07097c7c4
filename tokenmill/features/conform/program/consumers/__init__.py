"""A module for each library: how it reads a tokenizer's files, and how it is asked for ids. A new module is found by itself."""

import importlib
import pkgutil

from tokenmill.features.conform.program.consumer import CONSUMERS

__all__ = ["CONSUMERS"]

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
