"""DVC's part in a build: finds stale stages, restores stages from the run cache, and records runs.

The resulting dvc.lock is the one that `dvc repro` writes. Under `dvc repro` (DVC_STAGE is set) nothing here is called: DVC locks
the stage's paths and records the result itself.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tokenmill.config.defaults import with_defaults
from tokenmill.errors import VersionsError, room
from tokenmill.layout import COUNTS_FILE, DVC_LOCK_FILE, PARAMS_FILE, STAGES
from tokenmill.storage.atomic import write_atomic
from tokenmill.versioning import leftovers
from tokenmill.versioning.dvc_files import Known, ask_once, forget, is_params
from tokenmill.versioning.dvc_repository import reading_cache, repository

StageState = Literal["current", "frozen", "stale"]
Sight = Literal["outside", "linked", "ignored", "seen"]


class Change(NamedTuple):
    """A difference between a stage's recorded and present state. `path`: the input, output or parameter file, relative to dvc.yaml.
    `how`: DVC's word, such as "modified" or "deleted". `key`: the parameter, with dots. `files`: the differing files in the folder
    of counts, if DVC's cache has its list."""

    kind: str  # "never built", "input", "output", "parameter", "command" or "always"
    path: str
    how: str
    key: str = ""
    files: frozenset[str] = frozenset()


_COUNTS_DIRECTORY = Path(COUNTS_FILE).parent.as_posix()
_ABSENT = object()  # a missing key, which differs from null
NEVER_BUILT = Change("never built", "", "")


class DvcStage:
    """One stage of the project's dvc.yaml, as `opened` yields it. All methods raise VersionsError."""

    def __init__(self, repo: Any, name: str, known: Known) -> None:
        self._repo = repo
        self._name = name
        self._known = known
        self._stage = _load(repo, name, known)
        self._dependencies = {
            Path(dep.fs_path) for dep in self._stage.deps if hasattr(dep, "fs_path") and not is_params(dep)
        }

    def state(self) -> StageState:
        """Whether the stage's outputs match its present dependencies and parameters.

        A "frozen" stage must not run; its staleness is not checked, but its outputs must exist.
        """
        if self._stage.frozen:
            if missing := [str(out) for out in self._stage.outs if not out.exists]:
                raise VersionsError(
                    "",
                    f"stage {self._name} is frozen in dvc.yaml, so it does not run, and {missing[0]} is not there.",
                    f"Bring it back with `dvc checkout`, or let the stage run: `dvc unfreeze {self._name}`.",
                )
            return "frozen"
        with self._repo.lock:
            return "stale" if self._stage.status(check_updates=True) else "current"

    @property
    def was_built(self) -> bool:
        """Whether dvc.lock records a run of the stage."""
        return any(out.hash_info for out in self._stage.outs)

    @property
    def is_frozen(self) -> bool:
        """Whether dvc.yaml says that the stage must not run."""
        return bool(self._stage.frozen)

    def changes(self, beside: Sequence[Path] = ()) -> list[Change]:
        """What has changed since the stage ran; empty if it is current. Skips inputs and outputs that contain one of the paths
        `beside`, because DVC would read each new file in them."""
        if not self.was_built:  # not in dvc.lock; DVC would report deleted outputs
            return [NEVER_BUILT]
        inputs = [] if self._stage.frozen else self._stage.deps
        changes: list[Change] = []
        with self._repo.lock:
            for kind, entries in (("input", inputs), ("output", self._stage.outs)):
                for entry in entries:
                    path = os.path.relpath(entry.fs_path, self._stage.wdir)
                    if is_params(entry):
                        changes += _parameter_changes(entry, path)
                    elif not any(path_beside.is_relative_to(entry.fs_path) for path_beside in beside):
                        hows = entry.status().values()
                        files = _differing_files(entry) if hows and path == _COUNTS_DIRECTORY else frozenset()
                        changes += [Change(kind, path, how, files=files) for how in hows]
            if self._stage.changed_stage():
                changes.append(Change("command", "dvc.yaml", "modified"))
            if self._stage.always_changed:
                changes.append(Change("always", "dvc.yaml", "always_changed"))
        return changes

    def missing(self) -> list[Path]:
        """The dependencies of the stage that do not exist."""
        return [Path(dep.fs_path) for dep in self._stage.deps if not is_params(dep) and not dep.exists]

    @property
    def commands(self) -> list[str]:
        """The commands of the stage, each for a shell in `folder`."""
        return self._stage.cmd if isinstance(self._stage.cmd, list) else str(self._stage.cmd).splitlines()

    @property
    def folder(self) -> Path:
        """The folder in which the commands run."""
        return Path(self._stage.wdir)

    @property
    def outputs(self) -> list[Path]:
        """The files and folders that the stage makes."""
        return [Path(out.fs_path) for out in self._stage.outs]

    @property
    def outputs_to_remove(self) -> list[Path]:
        """The outputs to remove before the stage runs, without those that persist."""
        return [Path(out.fs_path) for out in self._stage.outs if not out.persist]

    def foreign_files(self) -> list[Path]:
        """The files in outputs that running the stage would lose: they are not in DVC's cache, so no build made them."""
        kept = {Path(out.fs_path) for out in self._stage.outs if out.persist}
        return [
            path
            for path in self.altered()
            if path.name not in (".gitignore", ".gitkeep") and kept.isdisjoint((path, *path.parents))
        ]

    def remove_outputs(self) -> None:
        """Removes the outputs, as `dvc repro` does before it runs a stage. Outputs that persist stay."""
        with self._repo.lock:
            self._stage.remove_outs(ignore_remove=False, force=False)

    def restore(self) -> bool:
        """Restores the outputs from DVC's run cache and records that, if the stage has run with these inputs before."""
        from dvc.exceptions import ConfirmRemoveError
        from dvc.stage.cache import RunCacheNotFoundError

        try:
            with self._repo.lock, reading_cache(self._repo):
                try:
                    self._repo.stage_cache.restore(self._stage)
                except ConfirmRemoveError:  # outputs of a killed build that DVC has not recorded
                    # Loaded again, because the first object has the new inputs already.
                    fresh = _load(self._repo, self._name, self._known)
                    fresh.remove_outs(ignore_remove=False, force=False)
                    self._repo.stage_cache.restore(fresh)
        except RunCacheNotFoundError:
            return False
        except FileNotFoundError:  # the run cache has the run, but the cache lacks its outputs
            return False
        with self._repo.lock:
            _save_dependencies(self._stage)
            self._known.clear()
            self._record()
        return True

    def altered(self) -> list[Path]:
        """The output files that DVC's cache does not have, so no recorded run of a stage made their bytes."""
        changed = [out for out in self._stage.outs if out.use_cache and out.exists and out.changed_checksum()]
        return [Path(out.fs_path, *key) for out in changed for key, oid in _files(out) if not out.cache.exists(oid)]

    def lacking_parameters(self) -> list[str]:
        """The keys that the stage's params name and params.yaml lacks. DVC runs no such stage."""
        entries = [dep for dep in self._stage.deps if is_params(dep) and Path(dep.fs_path).name == PARAMS_FILE]
        return sorted(key for entry in entries for key in set(entry.params).difference(entry.read_params()))

    def sees_parameter(self, key: str) -> bool:
        """Whether the stage's params name this key of params.yaml, a section around it, or parts of it."""
        listed = [
            entry.params for entry in self._stage.deps if is_params(entry) and Path(entry.fs_path).name == PARAMS_FILE
        ]
        return any(
            not keys or any(f"{key}.".startswith(f"{one}.") or one.startswith(f"{key}.") for one in keys)
            for keys in listed
        )

    def sight_of(self, path: Path) -> Sight:
        """Whether DVC notices changes of an input file. It follows links to files, but not links to folders inside a
        dependency, and it skips what .dvcignore names."""
        if str(path) in self.seen:
            return "seen"
        above = [dependency for dependency in self._dependencies if path.is_relative_to(dependency)]
        if not above:
            return "outside"
        n_inside = len(path.parent.parts) - max(len(dependency.parts) for dependency in above)
        if any(one.is_symlink() for one in list(path.parents)[:n_inside]):
            return "linked"
        return "ignored" if self._repo.dvcignore.is_ignored_file(str(path)) else "seen"

    @cached_property
    def seen(self) -> set[str]:
        """The files of the dependencies that DVC lists."""
        there = [dep for dep in self._stage.deps if not is_params(dep) and dep.exists]
        return {path for dep in there for path in _paths(dep)}

    @contextmanager
    def recording(self, checked: Set[str] = frozenset()) -> Iterator[None]:
        """Locks the stage while the block makes its outputs, and then records them with its inputs.

        If an input changes while the block runs, this raises VersionsError and records nothing. Until it ends, DVC in another
        process refuses to touch the stage's inputs and outputs. `checked`: the absolute paths of files that the block itself finds
        unchanged when it ends; DVC does not list a folder of such files again.
        """
        with self._locked_in_dvc():
            with self._repo.lock:
                _save_dependencies(self._stage)
            yield
            self._record_if_unchanged(checked)

    def _record_if_unchanged(self, checked: Set[str]) -> None:
        before = [(str(dep), dep.hash_info) for dep in self._stage.deps]
        if self._name in STAGES:
            unchecked = [dep for dep in self._stage.deps if is_params(dep) or not _paths(dep) <= checked]
            forget([*unchecked, *self._stage.outs], self._known)
        else:  # a project's own stage may change what it does not name
            self._known.clear()
        with self._repo.lock:
            _save_dependencies(self._stage)
            now = [dep.hash_info for dep in self._stage.deps]
            changed = [name for (name, then), info in zip(before, now, strict=True) if then != info]
            if changed:
                raise VersionsError(
                    f"stage {self._name}",
                    f"{', '.join(changed)} changed while the stage ran; nothing was recorded.",
                    "Run `tokenmill build` again when nothing changes the inputs any more.",
                )
            self._record()

    def _record(self) -> None:
        from dvc.exceptions import ConfirmRemoveError

        cache = self._repo.cache.local.path
        self._stage.save_outs()
        self._stage.md5 = self._stage.compute_md5()
        try:
            with reading_cache(self._repo):
                # DVC's run cache would copy also the folders for which dvc.yaml says `cache: false`.
                if all(out.use_cache or not out.hash_info.isdir for out in self._stage.outs):
                    self._repo.stage_cache.save(self._stage)
                self._stage.commit()
        # DVC ignores a file that it could not copy or a folder that it cannot list, and fails on it later with these errors.
        except (ConfirmRemoveError, AssertionError) as error:
            raise VersionsError(
                f"stage {self._name}",
                f"a file of its outputs could not be put into DVC's cache, {cache}; {room(cache)}.",
                "Check whether the disk is full or failing, and build again.",
            ) from error
        finally:
            leftovers.remove_partials_of_dvc(Path(out.fs_path) for out in self._stage.outs)
        _dump(self._stage)

    @contextmanager
    def _locked_in_dvc(self) -> Iterator[None]:
        from dvc.rwlock import rwlock

        repo = self._repo
        inputs = [str(path) for path in self._dependencies]
        outputs = [out.fs_path for out in self._stage.outs]
        hard_link = repo.config["core"].get("hardlink_lock", False)
        with rwlock(repo.tmp_dir, repo.fs, " ".join(sys.argv), inputs, outputs, hard_link):
            yield


@contextmanager
def all_opened(root: Path, names: Sequence[str], known: Known) -> Iterator[list[DvcStage]]:
    """Opens several stages of the project at `root`, to look at them; see `opened`."""
    with repository(root) as repo:
        yield [DvcStage(repo, name, known) for name in names]


@contextmanager
def opened(root: Path, stage: str, known: Known, md5_of: Callable[[str], str] | None = None) -> Iterator[DvcStage]:
    """Opens the stage of the project at `root`. Raises VersionsError, also for DVC's errors inside the block.

    `known`: a cache of what DVC found at paths, emptied when a stage has run. `md5_of`: gives the md5 of a file at an absolute path
    that DVC's own database does not have, in place of DVC's reading.
    """
    with repository(root) as repo:
        if md5_of is not None:
            # DVC asks a file system that has a method named after the hash, as those of clouds do. A version that does not ask
            # reads the file itself. Tried with dvc-data 3.18.3.
            repo.fs.md5 = md5_of
        yield DvcStage(repo, stage, known)


def recorded_files(root: Path, stage: str) -> dict[str, Path]:
    """The files of a stage's output directories as dvc.lock records them: their names relative to `root`, and their paths in
    DVC's cache. Directories that the cache does not have are left out. Raises VersionsError."""
    with repository(root) as repo:
        folders = [out for out in _load(repo, stage, {}).outs if out.hash_info and out.hash_info.isdir]
        trees = [(out, os.path.relpath(out.fs_path, repo.root_dir), out.get_obj()) for out in folders]
        return {
            "/".join((name, *key)): Path(out.cache.oid_to_path(info.value))
            for out, name, tree in trees
            if tree is not None
            for key, _meta, info in tree
        }


def _differing_files(entry: Any) -> frozenset[str]:
    """The names of files in a folder that differ from dvc.lock's record; empty if DVC's cache lacks its list."""
    tree = entry.get_obj() if entry.exists else None
    if tree is None:
        return frozenset()
    before, now = {key: info.value for key, _meta, info in tree}, dict(_files(entry))
    return frozenset("/".join(key) for key in before.keys() | now.keys() if before.get(key) != now.get(key))


def _parameter_changes(entry: Any, path: str) -> Iterator[Change]:
    """One change for each innermost key of a parameter file that differs."""
    for how in entry.status().values():
        if isinstance(how, str):  # of the whole file
            yield Change("parameter", path, how)
            continue
        before, now = entry.hash_info.value, entry.read_params()
        for key in how:
            values = (with_defaults(key, values.get(key, _ABSENT)) for values in (before, now))
            for one in _differing(key, *values):
                yield Change("parameter", path, how[key], one)


def _without_equal(status: Callable[[], dict[str, Any]], entry: Any) -> dict[str, Any]:
    """What DVC says has changed of parameters, but for sections that differ only in keys written with their defaults."""
    status_of = status()
    before, now = entry.hash_info.value or {}, entry.read_params()
    for path, how in list(status_of.items()):
        if not isinstance(how, str):
            both = {key: [with_defaults(key, values.get(key, _ABSENT)) for values in (before, now)] for key in how}
            status_of[path] = {key: word for key, word in how.items() if both[key][0] != both[key][1]}
    return {path: how for path, how in status_of.items() if how}


def _differing(key: str, before: Any, now: Any) -> Iterator[str]:
    """The innermost keys, with dots, whose values differ between two trees.

    >>> list(_differing("count", {"pattern": "gpt2", "count_min": 1}, {"pattern": "cl100k", "count_min": 1}))
    ['count.pattern']
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*before, *now)):
            yield from _differing(f"{key}.{name}", before.get(name, _ABSENT), now.get(name, _ABSENT))
    elif before != now:
        yield key


def _dump(stage: Any) -> None:
    """Writes the stage into dvc.lock atomically. DVC itself writes in place, so a kill would truncate the file."""
    from dvc.stage.serialize import to_lockfile
    from dvc.utils.serialize import dump_yaml, load_yaml

    path = Path(stage.repo.root_dir) / DVC_LOCK_FILE
    content = load_yaml(path) if path.exists() else {}
    content = {"schema": "2.0"} | content
    content["stages"] = content.get("stages", {}) | to_lockfile(stage)
    with write_atomic(path) as partial:
        dump_yaml(partial, content)


def _files(entry: Any) -> list[tuple[tuple[str, ...], str]]:
    """The files of a dependency or output as DVC finds them: names relative to its path, and md5."""
    dry = {"ignore": entry.dvcignore, "dry_run": True}
    found = entry._build(entry.local_cache, entry.fs_path, entry.fs, entry.hash_name, **dry)[2]
    if not found.hash_info.isdir:
        return [((), found.hash_info.value)]
    return [(key, info.value) for key, _meta, info in found]


def _paths(entry: Any) -> set[str]:
    """The absolute paths of these files."""
    return {"/".join((entry.fs_path, *key)) for key, _oid in _files(entry)}


def _load(repo: Any, name: str, known: Known) -> Any:
    from dvc.stage.exceptions import StageFileDoesNotExistError, StageNotFound

    try:
        stage = repo.stage.load_one(path=_pipeline(repo.root_dir), name=name)
    except (StageNotFound, StageFileDoesNotExistError):
        raise VersionsError(
            "dvc.yaml",
            f"expected a stage {name!r} in {repo.root_dir}.",
            "Restore dvc.yaml from git, or copy the stage from a new project.",
        ) from None
    ask_once([*stage.deps, *stage.outs], known)
    for entry in stage.deps:
        if is_params(entry) and Path(entry.fs_path).name == PARAMS_FILE:
            entry.workspace_status = partial(_without_equal, entry.workspace_status, entry)
    return stage


def _pipeline(root: Path | str) -> str:
    """The absolute path of dvc.yaml. DVC would resolve a relative one against the process's working directory."""
    return str(Path(root) / "dvc.yaml")


def _save_dependencies(stage: Any) -> None:
    from dvc.dependency.base import DependencyDoesNotExistError

    try:
        stage.save_deps()
    except DependencyDoesNotExistError as error:
        raise VersionsError(f"stage {stage.addressing}", f"{error}. dvc.yaml names it as a dependency.") from None
