"""The filters that a project asks for, or that a manifest says a dataset was made with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenmill.config.source_params import Source
from tokenmill.corpus.drop import drop_list
from tokenmill.corpus.filter import Filter, Filters
from tokenmill.errors import ParamsError
from tokenmill.features import PARTS, load


def asked_filters(root: Path, source: Source, has_ids: bool) -> Filters:
    """What says which documents the project at `root` leaves out, in order. `has_ids`: whether documents have ids. Raises
    CorpusError for a list of source.drop that cannot be read."""
    listed = drop_list(root, source.drop, has_ids)
    return ({"drop": listed} if listed.lines else {}) | filters_of(asked_values(source))


def asked_values(source: Source) -> dict[str, Any]:
    """What params.yaml says of each filter of the table of features, by its name; only of those that it asks for."""
    values = {name: getattr(source, name) for name in PARTS["filters"]}
    return {name: value for name, value in values.items() if value}


def filters_of(values: Mapping[str, Any]) -> dict[str, Filter]:
    """The filters of the table with these names and values. Raises ParamsError for a name that is not there, or a value that the
    filter refuses."""
    filters: dict[str, Filter] = {}
    for name, value in values.items():
        if name not in PARTS["filters"]:
            known = ", ".join(PARTS["filters"]) or "none"
            raise ParamsError(
                "filters", f"found {name!r}; this tokenmill has: {known}.", "Install the one that has it."
            )
        try:
            filters[name] = load(PARTS["filters"][name])(value)
        except (TypeError, ValueError) as error:
            raise ParamsError(f"source.{name}", f"found {value!r:.80}: {error}.", "Correct it.") from None
    return filters


def filter_folders() -> list[str]:
    """The folders of tokenmill/ with the code of the filters."""
    modules = {part.partition(":")[0] for part in PARTS["filters"].values()}
    return sorted({"/".join(module.split(".")[1:3]) for module in modules})
