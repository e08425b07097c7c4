"""The filters that a project asks for, or that a manifest says a dataset was made with."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

from tokenmill.config.source_params import Source
from tokenmill.corpus.dropped import DROPPED_FILE, Dropped
from tokenmill.corpus.filter import LISTED_BY, DocumentList, Filter, Filters, Left
from tokenmill.corpus.reader import Batch
from tokenmill.errors import ParamsError, TokenmillError
from tokenmill.features import PARTS, load, load_of_others, package_of, parts_of_others

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OWN = frozenset({*PARTS["lists"], *PARTS["filters"]})


def asked_filters(root: Path, source: Source, has_ids: bool) -> Filters:
    """What says which documents the project at `root` leaves out, in order. `has_ids`: whether documents have ids. Raises
    CorpusError for a list that cannot be read."""
    lists = {name: one for name, one in asked_lists(root, source, has_ids).items() if len(one)}
    return lists | filters_of(asked_values(source))


def asked_lists(root: Path, source: Source, has_ids: bool) -> dict[str, DocumentList]:
    """The lists of documents to leave out, by their names; empty ones, too. Raises as `asked_filters` does."""
    return {name: load(part).read(root, getattr(source, name), has_ids) for name, part in PARTS["lists"].items()}


def recorded_lists(dropped: Dropped) -> list[DocumentList]:
    """The lists whose lines left these documents out, rebuilt from them."""
    by_lists = dropped.by(LISTED_BY)
    return [load(part).recorded(by_lists, DROPPED_FILE) for part in PARTS["lists"].values()]


def asked_values(source: Source) -> dict[str, Any]:
    """The values of the filters that params.yaml asks for, by their names, without lists. Raises ParamsError for a filter of
    tokenmill in source.filters."""
    if own := source.filters.keys() & _OWN:
        name = min(own)
        raise ParamsError("source.filters", f"found {name!r}, a filter of tokenmill.", f"Set source.{name} instead.")
    values = {name: getattr(source, name) for name in PARTS["filters"]}
    return {name: value for name, value in values.items() if value} | source.filters


def filters_of(values: Mapping[str, Any]) -> dict[str, Filter]:
    """The filters with these names and values. Raises ParamsError for a name that neither tokenmill nor an installed package has,
    or a value that its filter refuses, and UsageError for a package that cannot be imported."""
    filters: dict[str, Filter] = {}
    others = _of_packages(values)
    for name, value in values.items():
        make = load_of_others(others[name]) if name in others else load(PARTS["filters"][name])
        try:
            filter = make(value)
        except (TypeError, ValueError) as error:
            raise ParamsError(param_of(name), f"found {value!r:.80}: {error}.", "Correct it.") from None
        filters[name] = FilterOfPackage(name, package_of(others[name]), filter) if name in others else filter
    return filters


def packages_of(names: Iterable[str]) -> dict[str, str]:
    """Name and version of the package of each filter among these that is none of tokenmill. Raises as `filters_of` does."""
    return {name: package_of(part) for name, part in _of_packages(names).items()}


def _of_packages(names: Iterable[str]) -> dict[str, "EntryPoint"]:
    wanted = [name for name in names if name not in PARTS["filters"]]
    parts = parts_of_others("filters", _OWN | LISTED_BY) if wanted else {}
    for name in wanted:
        if name not in parts:
            known = ", ".join(parts) or "none"
            fix = "Install the package that has it, or correct the name."
            raise ParamsError("source.filters", f"found {name!r}; installed are: {known}.", fix)
    return {name: parts[name] for name in wanted}


@dataclass(frozen=True)
class FilterOfPackage:
    """A filter that another package adds under this name. `package`: its name and version, which join the keys of units."""

    name: str
    package: str
    filter: Filter

    def as_key(self) -> Any:
        """All that decides which documents it leaves out (see Filter)."""
        return [self.package, self.filter.as_key()]

    def left_out(self, shard: str, batch: Batch) -> Mapping[int, Left]:
        """The documents of a batch that it leaves out, known by its name (see Filter). Raises ParamsError where it fails, or gives
        what is no index and reason, or on a machine that has another version of its package."""
        self._refuse_other_version()
        try:
            left = {
                operator.index(i): Left(why.reason, self.name) for i, why in self.filter.left_out(shard, batch).items()
            }
            wrong = [why for i, why in left.items() if not 0 <= i < len(batch.texts) or not isinstance(why.reason, str)]
            if wrong:
                raise IndexError(f"expected an index below {len(batch.texts):,}, with a reason in words; found another")
        except TokenmillError:
            raise
        except Exception as error:  # what another package raises
            raise ParamsError(
                param_of(self.name),
                f"this filter, of the package {self.package}, failed in {shard}, rows {batch.first_row:,} to "
                f"{batch.first_row + len(batch.texts) - 1:,}: {type(error).__name__}: {error}.",
                "Correct the package, or install another version of it.",
            ) from error
        return left

    def _refuse_other_version(self) -> None:
        name, _, wanted = self.package.rpartition(" ")
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = "none"
        if installed != wanted:
            raise ParamsError(
                param_of(self.name),
                f"the build has {self.package}; installed on {gethostname()} is {installed}.",
                "Install the same version on each machine of the cluster, and restart its workers.",
            )


def param_of(name: str) -> str:
    """The key of params.yaml that asks for the filter with this name."""
    return f"source.{name}" if name in _OWN else f"source.filters.{name}"
