"""Counts of pre-tokens by group of documents: a file for each group, and a list of their names."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tokenmill.counts.spill import Run, sum_of_runs
from tokenmill.counts.table import write_batches
from tokenmill.errors import CountsError
from tokenmill.storage.atomic import write_atomic

_NAMES_FILE = "groups.json"


class Groups(msgspec.Struct, frozen=True):
    """The groups of counted documents. `by`: what they were grouped by, as `count.by` says it. `names`: their names, sorted."""

    by: str
    names: list[str]

    def path(self, directory: Path, name: str) -> Path:
        """The counts of a group, in the directory of all."""
        return directory / f"{self.names.index(name):04}.parquet"


def write_groups(
    directory: Path, by: str, runs: Mapping[str, Sequence[Run]], scratch: Path, memory_bytes: int, count_min: int
) -> None:
    """Writes the sum of each group's runs into the directory. `count_min`: a pre-token that a group has less often is left out of
    that group's counts. `scratch`, `memory_bytes`: see sum_of_runs."""
    directory.mkdir()
    groups = Groups(by, sorted(runs))
    for name in groups.names:
        own = scratch / f"group-{groups.names.index(name)}"
        own.mkdir()
        write_batches(sum_of_runs(runs[name], own, memory_bytes, count_min), groups.path(directory, name))
    with write_atomic(directory / _NAMES_FILE) as path:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(groups), indent=2) + b"\n")


def read_groups(directory: Path) -> Groups:
    """The groups that `write_groups` wrote. Raises CountsError if they cannot be read."""
    path = directory / _NAMES_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Groups)
    except FileNotFoundError:
        raise CountsError(
            path, "missing; expected the names of the groups.", "Set count.by, and run `tokenmill build`."
        ) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise CountsError(path, f"cannot be read: {error}.", "Delete the file and run `tokenmill build`.") from None
