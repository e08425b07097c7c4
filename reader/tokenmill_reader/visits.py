"""The order in which a reader needs files: which ones to fetch next, and how soon a file is needed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenmill_reader.manifest import DatasetFile

_N_FEW = 3  # groups
_N_FILES_AHEAD_MIN = 8  # parts have one or two


class Visits:
    """Groups of files that are read one after another; files of a group are needed together. After the last group comes the first
    one again, in the next epoch.

    `cache_bytes`: half of it is for files of later groups; None: no limit.
    """

    def __init__(self, groups: Sequence[Sequence[DatasetFile]], cache_bytes: int | None) -> None:
        self._groups = groups
        self._group_of = {file.name: i for i, group in enumerate(groups) for file in group}
        self._n_ahead_max = max(_N_FILES_AHEAD_MIN, max(map(len, groups), default=0))
        self._bytes_ahead_max = float("inf") if cache_bytes is None else cache_bytes // 2
        self._is_in_order = self._n_ahead_max == _N_FILES_AHEAD_MIN
        self._at = 0

    def go_to(self, name: str) -> None:
        """The group with this file is read now. A file of no group changes nothing."""
        self._at = self._group_of.get(name, self._at)

    def next_use(self, name: str) -> float:
        """How many groups later a file is needed; 0: now. A file of no group comes last. A group of one part that was passed just
        now counts as the next one, since another process may not have come to it yet."""
        group, n_groups = self._group_of.get(name), len(self._groups)
        if group is None:
            return float(n_groups)
        later = (group - self._at) % n_groups
        return 0.5 if later == n_groups - 1 > _N_FEW and self._is_in_order else later

    @property
    def now(self) -> Sequence[DatasetFile]:
        """The files of the group that is read now."""
        return self._groups[self._at]

    def ahead(self) -> Iterator[DatasetFile]:
        """The files of this group, then those of the next ones in this epoch, whether they are here or not."""
        n_files, n_bytes = 0, 0
        for i in range(self._at, len(self._groups)):
            for file in self._groups[i]:
                if i > self._at:
                    n_files, n_bytes = n_files + 1, n_bytes + file.n_bytes
                    if n_files > self._n_ahead_max or n_bytes > self._bytes_ahead_max:
                        return
                yield file
