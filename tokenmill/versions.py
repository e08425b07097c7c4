"""DVC's part in a build: which stages are stale, which come back from the run cache, and the record of those that ran.

All of it runs in process: a status is 0.1 s, `dvc repro` with a subprocess a stage costs 3 s a stage. The dvc.lock that
results is the one `dvc repro` writes. Under `dvc repro` (DVC_STAGE is set) none of this is called: DVC holds locks on
the stage's paths and records the result itself.
"""

import json
import logging
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import psutil

from tokenmill import leftovers
from tokenmill.dvc_files import Known, ask_once, is_params, make_strict
from tokenmill.errors import VersionsError, room
from tokenmill.files import naming, read, write_atomic
from tokenmill.links import has_clones

State = Literal["current", "frozen", "stale"]
Sight = Literal["outside", "linked", "ignored", "seen"]

_SITE_CACHE = Path(".dvc/tmp/site-cache")
_SITE_CACHE_VARIABLE = "DVC_SITE_CACHE_DIR"


def quiet_environment() -> None:
    """Turns telemetry and update checks of DVC and Prefect off; only works before they are imported."""
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")


class Stage:
    """One stage of the project's dvc.yaml, as `opened` yields it. All methods raise VersionsError."""

    def __init__(self, repo: Any, name: str, known: Known) -> None:
        self._repo = repo
        self._name = name
        self._known = known
        self._stage = _load(repo, name, known)
        self._dependencies = {
            Path(dep.fs_path) for dep in self._stage.deps if hasattr(dep, "fs_path") and not is_params(dep)
        }

    def state(self) -> State:
        """Whether the stage's outputs belong to its dependencies and parameters as they are now.

        "frozen" is DVC's word for a stage that is not to run; its staleness is not looked at.
        """
        if self._stage.frozen:
            return "frozen"
        with self._repo.lock:
            return "stale" if self._stage.status(check_updates=True) else "current"

    def changes(self) -> list[str]:
        """What is no longer as it was when the stage ran, like "params.yaml: count.pattern modified"; empty: it is current."""
        with self._repo.lock:
            status = self._stage.status(check_updates=True)
        found: list[str] = []
        for change in (one for changes in status.values() for one in changes):
            if isinstance(change, str):  # its command was changed
                found.append(change)
                continue
            for path, what in (item for group in change.values() for item in group.items()):
                found += (
                    [f"{path}: {key} {how}" for key, how in what.items()]
                    if isinstance(what, dict)
                    else [f"{path} {what}"]
                )
        return found

    def restore(self) -> bool:
        """Brings the outputs back from DVC's run cache, if the stage has run with these inputs before, and records it."""
        from dvc.exceptions import ConfirmRemoveError
        from dvc.stage.cache import RunCacheNotFoundError

        try:
            with self._repo.lock:
                try:
                    self._repo.stage_cache.restore(self._stage)
                except ConfirmRemoveError:  # outputs of a killed build, which DVC has not recorded
                    # with the old inputs: DVC has put the new ones into the other
                    fresh = _load(self._repo, self._name, self._known)
                    fresh.remove_outs(ignore_remove=False, force=False)
                    self._repo.stage_cache.restore(fresh)
        except RunCacheNotFoundError:
            return False
        except FileNotFoundError:  # the run is known, its outputs have left the cache
            return False
        with self._repo.lock:
            _save_dependencies(self._stage)
            self._known.clear()
            self._record()
        return True

    def sight_of(self, path: Path) -> Sight:
        """Whether DVC sees a file of the stage's input change: it follows links to files, but not to folders inside a
        dependency, and leaves out what .dvcignore names."""
        if str(path) in self._seen:
            return "seen"
        above = [dependency for dependency in self._dependencies if path.is_relative_to(dependency)]
        if not above:
            return "outside"
        n_inside = len(path.parent.parts) - max(len(dependency.parts) for dependency in above)
        if any(one.is_symlink() for one in list(path.parents)[:n_inside]):
            return "linked"
        return "ignored" if self._repo.dvcignore.is_ignored_file(str(path)) else "seen"

    @cached_property
    def _seen(self) -> set[str]:
        """The files of the dependencies as DVC lists them."""
        there = [dep for dep in self._stage.deps if not is_params(dep) and dep.exists]
        found = [(dep.fs_path, _built(dep)) for dep in there]
        return {
            "/".join((path, *key))
            for path, tree in found
            for key in ((key for key, _meta, _info in tree) if tree.hash_info.isdir else [()])
        }

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Removes the outputs, lets the block make them, and records them with the inputs they were made from.

        Raises VersionsError, and records nothing, when an input changed while the block ran. Until the end DVC refuses to
        touch the stage's inputs and outputs for another process.
        """
        with self._kept_from_others():
            with self._repo.lock:
                _save_dependencies(self._stage)
                self._stage.remove_outs(ignore_remove=False, force=False)
            yield
            self._record_if_unchanged()

    def _record_if_unchanged(self) -> None:
        before = [(str(dep), dep.hash_info) for dep in self._stage.deps]
        self._known.clear()
        with self._repo.lock:
            _save_dependencies(self._stage)
            now = [dep.hash_info for dep in self._stage.deps]
            changed = [name for (name, then), info in zip(before, now, strict=True) if then != info]
            if changed:
                raise VersionsError(
                    f"stage {self._name}: {', '.join(changed)} changed while the stage ran; nothing was recorded. "
                    "Run `tokenmill build` again when the inputs are at rest."
                )
            self._record()

    def _record(self) -> None:
        self._stage.save_outs()
        self._stage.md5 = self._stage.compute_md5()
        self._repo.stage_cache.save(self._stage)
        self._stage.commit()
        _dump(self._stage)

    @contextmanager
    def _kept_from_others(self) -> Iterator[None]:
        from dvc.rwlock import rwlock

        repo = self._repo
        inputs = [str(path) for path in self._dependencies]
        outputs = [out.fs_path for out in self._stage.outs]
        hard_link = repo.config["core"].get("hardlink_lock", False)
        with rwlock(repo.tmp_dir, repo.fs, " ".join(sys.argv), inputs, outputs, hard_link):
            yield


@contextmanager
def opened(root: Path, stage: str, known: Known) -> Iterator[Stage]:
    """The stage of the project at `root`. Raises VersionsError, also for what DVC finds wrong inside the block.

    `known`: what DVC found when it looked at paths; it is added to, and emptied when a stage has run.
    """
    with repository(root) as repo:
        yield Stage(repo, stage, known)


def initialize(root: Path, is_inside: bool) -> None:
    """Makes the folder `root` a DVC repository; `is_inside`: git's is above it. Raises VersionsError."""
    quiet_environment()
    from dvc.config import Config
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    _quiet_logs()
    chosen = os.environ.get(_SITE_CACHE_VARIABLE)
    with TemporaryDirectory(
        prefix="tokenmill-"
    ) as private:  # for DVC writes into its site cache now, before it can be told
        os.environ[_SITE_CACHE_VARIABLE] = chosen or private
        try:
            Repo.init(str(root), subdir=is_inside).close()
        except (DvcException, OSError) as error:
            shutil.rmtree(root / ".dvc", ignore_errors=True)  # another run would take half of one for somebody's own
            raise VersionsError(f"DVC: {_innermost(error)}") from error
        finally:
            os.environ.pop(_SITE_CACHE_VARIABLE)
            if chosen:
                os.environ[_SITE_CACHE_VARIABLE] = chosen
    with Config(str(root / ".dvc")).edit("repo") as config:
        config["core"] |= {"analytics": False, "check_update": False}
        config["cache"]["type"] = "reflink,hardlink,copy"


def site_cache(root: Path) -> Path:
    """The folder out of which DVC, in the project's folder, would unpickle now. Raises VersionsError."""
    from dvc.config import Config, ConfigError
    from dvc.dirs import site_cache_dir

    try:
        chosen = Config(str(root / ".dvc")).get("core", {}).get("site_cache_dir")
    except ConfigError as error:
        raise VersionsError(f"{root / '.dvc/config'}: {_innermost(error)}") from error
    return Path(root, site_cache_dir(chosen))


def recorded_files(root: Path, stage: str) -> dict[str, Path]:
    """Where DVC's cache has the files of a stage's output directories as dvc.lock records them, by their names seen from
    `root`; without those of a directory that the cache does not know. Raises VersionsError."""
    with repository(root) as repo:
        trees = [(out, out.get_obj()) for out in _load(repo, stage, {}).outs if out.hash_info and out.hash_info.isdir]
        return {
            Path(out.fs_path, *key).relative_to(repo.root_dir).as_posix(): Path(out.cache.oid_to_path(info.value))
            for out, tree in trees
            if tree is not None
            for key, _meta, info in tree
        }


def mend(root: Path) -> None:
    """Puts right what a build that was killed can leave in DVC's files. Raises VersionsError."""
    leftovers.mend_dvc_lock(root)
    with repository(root) as repo, repo.lock:
        leftovers.remove_of_dvc(root)
        _mend_rwlock(repo)


def _mend_rwlock(repo: Any) -> None:
    """Forgets who held DVC's locks on paths when the file was cut short, or names a process that began after it was written.

    DVC forgets ended processes by itself, but not one whose id another process has now.
    """
    path = Path(repo.tmp_dir) / "rwlock"
    try:
        held = json.loads(read(path))
        holders = [*held.get("write", {}).values(), *(one for some in held.get("read", {}).values() for one in some)]
        written_s = path.stat().st_mtime
        reused = [one for one in holders if (started_s := _started_s(one["pid"])) and started_s > written_s]
    except FileNotFoundError:
        return
    except ValueError:
        path.unlink()
        return
    if reused:
        path.unlink()


def _started_s(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def _dump(stage: Any) -> None:
    """Writes the stage into dvc.lock in one step; DVC itself writes into the file, and a kill would cut it."""
    from dvc.stage.serialize import to_lockfile
    from dvc.utils.serialize import dump_yaml, load_yaml

    path = Path(stage.repo.root_dir) / "dvc.lock"
    content = load_yaml(path) if path.exists() else {}
    content = {"schema": "2.0"} | content
    content["stages"] = content.get("stages", {}) | to_lockfile(stage)
    with write_atomic(path) as partial:
        dump_yaml(partial, content)


def _built(dependency: Any) -> Any:
    """DVC's object of a dependency: the tree of a folder, with each file's md5, or that of a file."""
    dry = {"ignore": dependency.dvcignore, "dry_run": True}
    return dependency._build(dependency.local_cache, dependency.fs_path, dependency.fs, dependency.hash_name, **dry)[2]


def _load(repo: Any, name: str, known: Known) -> Any:
    from dvc.stage.exceptions import StageFileDoesNotExistError, StageNotFound

    try:
        stage = repo.stage.load_one(path=_pipeline(repo.root_dir), name=name)
    except (StageNotFound, StageFileDoesNotExistError):
        raise VersionsError(
            f"dvc.yaml: expected a stage {name!r} in {repo.root_dir}. Take this project's dvc.yaml as it was delivered."
        ) from None
    ask_once([*stage.deps, *stage.outs], known)
    return stage


def _pipeline(root: Path | str) -> str:
    """dvc.yaml by its absolute path: DVC sees a relative one from the folder in which the process runs."""
    return str(Path(root) / "dvc.yaml")


def _save_dependencies(stage: Any) -> None:
    from dvc.dependency.base import DependencyDoesNotExistError

    try:
        stage.save_deps()
    except DependencyDoesNotExistError as error:
        raise VersionsError(f"stage {stage.addressing}: {error}. dvc.yaml names it as a dependency.") from None


@contextmanager
def repository(root: Path) -> Iterator[Any]:
    """DVC's repository at `root`; its errors as VersionsError with the innermost reason."""
    quiet_environment()
    import diskcache  # type: ignore[import-untyped]
    from dvc.exceptions import DvcException, NotDvcRepoError
    from dvc.lock import LockError
    from dvc.repo import Repo

    make_strict()
    _quiet_logs()
    try:
        with naming(root / ".dvc"):
            keep_site_cache_private(root)
        with (
            naming(root / ".dvc"),
            chdir(root),
            Repo(str(root)) as repo,
        ):  # DVC looks for dvc.yaml in the folder in which the process runs
            _keep_bytes_once(repo)
            if "checksum_jobs" not in repo.config["core"]:  # DVC itself would take half of the cores
                repo.fs.hash_jobs = len(os.sched_getaffinity(0))
            yield repo
    except NotDvcRepoError:
        raise VersionsError(f"{root}: not a DVC repository. Run `git init && dvc init` there.") from None
    except LockError as error:
        holders = re.findall(r"\(PID (\d+)\): (.*)", str(error))
        named = " and ".join(f"process {pid} ({command})" for pid, command in sorted(set(holders)))
        raise VersionsError(
            f"{root}: {named or 'another process of DVC'} is at work on the project's files. Run this again when it has ended."
        ) from error
    except DvcException as error:
        raise VersionsError(f"DVC: {_innermost(error)}") from error
    except (sqlite3.Error, diskcache.Timeout) as error:
        folder = root / _SITE_CACHE
        raise VersionsError(
            f"DVC: its databases in {folder}: {str(error) or 'they cannot be written to'}; {room(str(folder))}. See whether the "
            "disk is full or failing, and build again; the folder is a cache, and may be deleted."
        ) from error


def _quiet_logs() -> None:
    """No progress bars of DVC, and no hints to type dvc commands."""
    for name in ("dvc", "dvc_data", "dvc_objects"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def keep_site_cache_private(root: Path) -> None:
    """Points DVC's site cache into the project, by its absolute path, unless someone chose another.

    DVC unpickles what it finds in that directory, and its default is writable for every user of the machine
    (CVE-2025-69872). A relative path would be seen from the folder in which a command runs.
    """
    from dvc.config import Config
    from dvc.exceptions import NotDvcRepoError

    if not (root / ".dvc").is_dir():
        raise NotDvcRepoError(str(root))
    wanted = root / _SITE_CACHE
    config = Config(str(root / ".dvc"))
    chosen = Path(config.get("core", {}).get("site_cache_dir", _SITE_CACHE))
    if chosen != wanted and chosen.parts[-3:] == _SITE_CACHE.parts:
        with config.edit("local", validate=False) as local:
            local.setdefault("core", {})["site_cache_dir"] = str(wanted)
    wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    if wanted.stat().st_mode & 0o077:  # DVC itself makes it for everyone
        wanted.chmod(0o700)


def _keep_bytes_once(repo: Any) -> None:
    """Lets the cache take outputs in as hard links where the file system has no clones, unless someone chose copies.

    An output of the unit store is a read-only hard link already; as a copy each byte would be on disk three times. With
    "reflink" before "hardlink" in cache.type, DVC copies into the cache.
    """
    cache = repo.cache.local
    chosen = repo.config["cache"].get("type")
    if (chosen is None or {"reflink", "hardlink"} <= set(chosen)) and not has_clones(Path(cache.path)):
        cache.cache_types = ["hardlink", "copy"]


def _innermost(error: BaseException) -> str:
    from dvc.utils.strictyaml import YAMLSyntaxError, YAMLValidationError

    place, end = "", ""
    if isinstance(error, YAMLSyntaxError | YAMLValidationError):
        place = f"{error.relpath}: " if isinstance(error, YAMLSyntaxError) else f"{error.path}: "
        end = f"{getattr(error, 'hint', '')}. Correct the file, or restore it from git."
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{place}{' '.join(str(error).split()) or type(error).__name__}{end}"
