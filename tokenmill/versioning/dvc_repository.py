"""The project's DVC repository: creates it, opens it, repairs it after a killed build, and reports DVC's errors in one line.

DVC runs in this process. A status takes 0.1 s; `dvc repro`, with a subprocess per stage, costs 3 s per stage.
"""

import errno
import getpass
import hashlib
import json
import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import walk_tb
from typing import Any

from tokenmill.console import console, say
from tokenmill.errors import VersionsError, room
from tokenmill.storage.links import has_clones
from tokenmill.storage.writable import may_write, user_caches
from tokenmill.versioning import git, leftovers
from tokenmill.versioning.dvc_patches import patched
from tokenmill.versioning.dvc_settings import set_in
from tokenmill_reader.regular_files import naming, read

_SITE_CACHE = Path(".dvc/tmp/site-cache")
_SITE_CACHES = Path("tokenmill/site-cache")
_RWLOCK = "rwlock"
_SITE_CACHE_VARIABLE = "DVC_SITE_CACHE_DIR"


def quiet_environment() -> None:
    """Turns off telemetry and update checks of DVC and Prefect. It works only before they are imported. DVC asks for the user's
    name; without one, as in many containers, it gets the user's number."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = str(os.getuid())
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")


def initialize(root: Path, is_inside: bool) -> None:
    """Makes the folder `root` a DVC repository. `is_inside`: git's repository is in a parent folder. Raises VersionsError."""
    quiet_environment()
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    quiet_logs()
    with temporary_site_cache():  # DVC writes into its site cache before the project's setting for it exists
        try:
            Repo.init(str(root), subdir=is_inside).close()
        except (DvcException, OSError) as error:
            shutil.rmtree(
                root / ".dvc", ignore_errors=True
            )  # otherwise the next run would take it for the user's choice
            raise VersionsError("DVC", innermost(error)) from error
    set_in(root / ".dvc/config", "core", {"analytics": False, "check_update": False})
    set_in(root / ".dvc/config", "cache", {"type": "reflink,hardlink,copy"})


@contextmanager
def temporary_site_cache() -> Iterator[None]:
    """Sets a temporary site cache for DVC during the block, unless DVC's variable names one. DVC unpickles files there, and would
    use the one that a foreign repository's config names."""
    chosen = os.environ.get(_SITE_CACHE_VARIABLE)
    with TemporaryDirectory(prefix="tokenmill-") as private:
        os.environ[_SITE_CACHE_VARIABLE] = chosen or private
        try:
            yield
        finally:
            os.environ.pop(_SITE_CACHE_VARIABLE)
            if chosen:
                os.environ[_SITE_CACHE_VARIABLE] = chosen


def site_cache(root: Path) -> Path:
    """DVC's site cache in this project, whose files DVC unpickles. Raises VersionsError."""
    from dvc.dirs import site_cache_dir

    return Path(root, site_cache_dir(_config(root).get("core", {}).get("site_cache_dir")))


def cache_directory(root: Path) -> Path:
    """The folder of DVC's cache for the project. Raises VersionsError."""
    return Path(root, _config(root).get("cache", {}).get("dir") or ".dvc/cache")


def remote_names(root: Path) -> list[str]:
    """The names of the project's DVC remotes. Raises VersionsError."""
    return [str(name) for name in _config(root).get("remote", {})]


def _config(root: Path) -> Any:
    from dvc.config import Config, ConfigError
    from voluptuous import Invalid

    try:
        with naming(root / ".dvc"):
            return Config(str(root / ".dvc"))
    except (ConfigError, Invalid, TypeError) as error:
        raise _settings_error(root, error) from error


def _settings_error(root: Path, error: Exception) -> VersionsError:
    """The error for settings that DVC refuses, with the file that has them: DVC reads those of the machine, of the account, of the
    project and of this copy of it."""
    from dvc.config import Config, ConfigError
    from voluptuous import Invalid

    for folder in (Config.get_dir("system"), Config.get_dir("global"), root / ".dvc"):
        for name in ("config", "config.local"):
            try:
                Config.validate(Config.load_file(str(Path(folder, name))))
            except (ConfigError, Invalid, TypeError) as found:  # TypeError: a key before the first section
                return VersionsError(Path(folder, name), f"DVC's settings: {innermost(found)}.", "Correct the file.")
            except OSError:
                continue
    return VersionsError(root / ".dvc/config", innermost(error))


@contextmanager
def repository(root: Path) -> Iterator[Any]:
    """Opens DVC's repository at `root`. DVC's errors become VersionsError with the innermost reason."""
    quiet_environment()
    import diskcache  # type: ignore[import-untyped]
    from dvc.config import ConfigError
    from dvc.exceptions import DvcException, NotDvcRepoError
    from dvc.lock import LockError
    from dvc.rwlock import RWLockFileCorruptedError, RWLockFileFormatError
    from dvc.scm import SCMError
    from voluptuous import Invalid

    quiet_logs()
    try:
        with (
            patched(),
            naming(root / ".dvc"),
            chdir(root),
            _opened(root) as repo,
        ):  # DVC looks for dvc.yaml in the working directory
            _remove_rwlock_if(_was_cut, repo)
            _keep_bytes_once(repo)
            # DVC's default is half of the cores, and a file system that is passed to it does not get the setting.
            repo.fs.hash_jobs = repo.config["core"].get("checksum_jobs") or len(os.sched_getaffinity(0))
            yield repo
    except NotDvcRepoError:
        raise VersionsError(root, "not a DVC repository.", "Run `git init && dvc init` there.") from None
    except LockError as error:
        if failed := _failed_call(error):
            with naming(root / ".dvc/tmp"):
                raise failed from None
        raise _held_by_another(root, error) from error
    except SCMError as error:
        raise VersionsError(root / ".git", f"{innermost(error)}.", "See what `git status` says there.") from error
    except (RWLockFileCorruptedError, RWLockFileFormatError) as error:
        raise VersionsError(
            root / ".dvc/tmp" / _RWLOCK,
            "DVC's list of running commands is truncated.",
            "Run this command again: DVC then writes the list anew.",
        ) from error
    except (ConfigError, Invalid) as error:
        raise _settings_error(root, error) from error
    except DvcException as error:
        raise VersionsError("DVC", innermost(error)) from error
    except UnicodeEncodeError as error:
        if not os.path.lexists(error.object):  # raised by a step inside the block
            raise
        raise VersionsError(
            error.object,
            "expected a name that is valid UTF-8, which DVC's database needs.",
            "Rename the file, or move it elsewhere.",
        ) from None
    except UnicodeDecodeError:
        for path in root.rglob(".dvcignore"):
            try:
                read(path).decode()
            except ValueError as error:
                raise VersionsError(path, f"expected UTF-8; {error}.", "Correct the file.") from None
        raise
    except (ValueError, TypeError) as error:
        frames = [frame for frame, _line in walk_tb(error.__traceback__)]
        module = frames[-1].f_globals["__name__"]
        if module == "dvc.config":
            raise _settings_error(root, error) from error
        if not module.startswith("dulwich."):  # by which DVC reads the settings of git
            raise
        git.git(root, "config", "--list")  # whose error has the file and the line
        paths = [frame.f_locals["path"] for frame in frames if frame.f_code.co_name == "from_path"]
        raise VersionsError(
            paths[0] if paths else root / ".git/config", f"git's settings cannot be read: {error}.", "Correct the file."
        ) from None
    except (sqlite3.Error, diskcache.Timeout) as error:
        folder = _private_site_cache(root)
        raise VersionsError(
            "DVC",
            f"its databases in {folder}: {str(error) or 'they cannot be written to'}; {room(str(folder))}.",
            "See whether the disk is full or failing, and build again; the folder is a cache, and may be deleted.",
        ) from error


def _held_by_another(root: Path, error: Exception) -> VersionsError:
    """The error for files of the project that another process of DVC has locked."""
    holders = re.findall(r"\(PID (\d+)\): (.*)", str(error))
    named = " and ".join(f"process {pid} ({command})" for pid, command in sorted(set(holders)))
    what = f"{named or 'another process of DVC'} is at work on the project's files."
    return VersionsError(root, what, "Run this again when it has ended.")


def _opened(root: Path) -> Any:
    """Opens DVC's repository. If this user may not write to it, DVC's locks and databases go to a private temporary folder, so DVC
    hashes all files."""
    from unittest.mock import patch

    from dvc.repo import Repo

    from tokenmill.versioning.dvc_local_files import project_files

    written = (root / ".dvc", root / ".dvc/tmp", _private_site_cache(root))
    if all(map(may_write, written)):
        keep_site_cache_private(root)
        return Repo(str(root), fs=project_files())
    private = _private_folder().name
    # Tried with DVC 3.67.1, which creates its folder for locks on opening, and adds it to .dvc/.gitignore.
    with patch.object(Repo, "tmp_dir", private), patch.object(Repo, "_ignore", lambda _repo: None):
        repo = Repo(str(root), fs=project_files(), config={"core": {"site_cache_dir": private}})
        repo.tmp_dir = private
    return repo


@cache
def _private_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="tokenmill-")


def mend(root: Path) -> None:
    """Repairs DVC's files after a killed build. Raises VersionsError."""
    leftovers.mend_dvc_lock(root)
    with repository(root) as repo, repo.lock:
        _remove_rwlock_if(_names_another, repo)
        leftovers.remove_of_dvc(root)


def forget_hashes(root: Path) -> None:
    """Clears DVC's stored md5 of files (by path, inode, length and mtime), so that it reads them again. Raises VersionsError."""
    with repository(root) as repo:
        repo.state.hashes.clear()


@contextmanager
def reading_cache(repo: Any) -> Iterator[None]:
    """Makes DVC check cached files by md5, stored or computed; DVC's own check looks only at the mode. A damaged file is deleted,
    so it counts as missing."""
    cache = repo.cache.local
    cache.check = partial(_check_bytes, cache)
    try:
        yield
    finally:
        del cache.check


def _check_bytes(cache: Any, oid: str, **_asked: Any) -> Any:
    """Replaces DVC's check of an object, with the same result and errors."""
    from dvc_data.fsutils import _localfs_info
    from dvc_data.hashfile.hash import hash_file
    from dvc_objects.errors import ObjectFormatError

    path = cache.oid_to_path(oid)
    meta, found = hash_file(path, cache.fs, cache.hash_name, cache.state, info=_localfs_info(path))
    if (found.value or "").removesuffix(".dir") != oid.removesuffix(".dir"):  # DVC stores a folder's md5 with .dir
        cache.fs.remove(path)
        say(
            f"{path}: the bytes of this file in DVC's cache did not match its name. The file is removed, and made again "
            "when it is needed"
        )
        raise ObjectFormatError(path)
    return meta


def _remove_rwlock_if(is_wrong: Callable[[Path], bool], repo: Any) -> None:
    """Deletes DVC's list of path lock holders if it is wrong."""
    from dvc.lock import make_lock

    path = Path(repo.tmp_dir) / _RWLOCK
    if is_wrong(path):
        hard_link = repo.config["core"].get("hardlink_lock", False)
        with make_lock(
            f"{path}.lock", tmp_dir=repo.tmp_dir, hardlink_lock=hard_link
        ):  # writers of the file hold this lock
            if is_wrong(path):
                path.unlink()


def _was_cut(path: Path) -> bool:
    from voluptuous import Invalid

    try:
        _holders(path)
    except FileNotFoundError:
        return False
    except (ValueError, Invalid):
        return True
    return False


def _names_another(path: Path) -> bool:
    """Whether a process in the file started after the file was written. DVC removes ended processes itself, unless their id has
    been reused.

    Use this only after a killed build: a step of the clock makes a live process look like a reused id.
    """
    try:
        holders = _holders(path)
        written_s = path.stat().st_mtime
    except FileNotFoundError:
        return False
    if os.getpid() in holders:
        return False
    return any((started_s := _started_s(pid)) and started_s > written_s for pid in holders)


def _holders(path: Path) -> set[int]:
    from dvc.rwlock import SCHEMA

    held = SCHEMA(json.loads(read(path)))
    return {one["pid"] for one in (*held["write"].values(), *(one for some in held["read"].values() for one in some))}


def _started_s(pid: int) -> float | None:
    import psutil

    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def quiet_logs() -> None:
    """Silences DVC's progress bars and its hints to type dvc commands. With --debug, DVC logs everything."""
    for name in ("dvc", "dvc_data", "dvc_objects"):
        logging.getLogger(name).setLevel(logging.CRITICAL if console.level < 2 else logging.DEBUG)


def keep_site_cache_private(root: Path) -> None:
    """Points DVC's site cache to a private folder, by an absolute path, unless the user chose another.

    DVC unpickles files from that directory, and its default is writable for every user of the machine (CVE-2025-69872). DVC
    would resolve a relative path against the folder in which a command runs.
    """
    from dvc.config import Config
    from dvc.exceptions import NotDvcRepoError

    if not (root / ".dvc").is_dir():
        raise NotDvcRepoError(str(root))
    wanted = _private_site_cache(root)
    config = Config(str(root / ".dvc"))
    chosen = Path(config.get("core", {}).get("site_cache_dir", _SITE_CACHE))
    is_ours = chosen.parts[-3:] == _SITE_CACHE.parts or chosen.parts[-3:-1] == _SITE_CACHES.parts
    if chosen != wanted and is_ours:
        set_in(root / ".dvc/config.local", "core", {"site_cache_dir": str(wanted)})
    wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    if wanted.stat().st_mode & 0o077:  # DVC creates it with permissions for everyone
        wanted.chmod(0o700)


def _private_site_cache(root: Path) -> Path:
    """The project's own site cache: inside the project; if its path has characters beyond ASCII, in the user's folder for caches.

    Beside such a path, the commands `dvc config --local` and `dvc remote modify --local` end in a traceback, and leave an empty
    config.local: DVC writes ASCII alone. Tried with DVC 3.67.1.
    """
    caches = user_caches()
    if str(root).isascii() or caches is None or not str(caches).isascii():
        return root / _SITE_CACHE
    return caches / _SITE_CACHES / hashlib.sha256(str(root).encode()).hexdigest()[:16]


def _keep_bytes_once(repo: Any) -> None:
    """Makes DVC's cache take outputs as hard links if the file system has no reflinks, unless the user chose copies.

    An output from the unit store is already a read-only hard link; as a copy, each byte would be on disk three times. If
    cache.type has "reflink" before "hardlink", DVC copies into the cache. This also stops DVC from trying a reflink: it first
    creates an empty file, and mistakes that for the result if it cannot be removed.
    """
    cache = repo.cache.local
    if has_clones(Path(cache.path)):
        return
    repo.fs.reflink = cache.fs.reflink = _refuse_clone
    chosen = repo.config["cache"].get("type")
    if chosen is None or {"reflink", "hardlink"} <= set(chosen):
        cache.cache_types = ["hardlink", "copy"]


def cache_of(root: Path) -> tuple[str, bool]:
    """The path of DVC's cache of the project at `root`, and whether it links outputs instead of copying them.

    Raises VersionsError."""
    with repository(root) as repo:
        cache = repo.cache.local
        path = Path(cache.path)
        there = next(ancestor for ancestor in (path, *path.parents) if ancestor.is_dir())
        is_same_disk = there.stat().st_dev == root.stat().st_dev
        kinds = list(cache.cache_types)
        shares = is_same_disk and (has_clones(there) or kinds[0] in ("hardlink", "symlink"))
        return str(path), shares


def _refuse_clone(_source: str, target: str) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), target)


def _failed_call(error: BaseException) -> OSError | None:
    """The OSError behind a failure to lock; None if another process holds the lock. If a system call fails while DVC writes a lock,
    DVC retries and then finds its own lock."""
    found: BaseException | None = error
    while found is not None and (not isinstance(found, OSError) or isinstance(found, BlockingIOError)):
        found = found.__cause__ or found.__context__
    return found


def innermost(error: BaseException) -> str:
    """The innermost reason of an error of DVC in one line, with the YAML file if there is one."""
    from dvc.utils.strictyaml import YAMLSyntaxError, YAMLValidationError

    place, end = "", ""
    if isinstance(error, YAMLSyntaxError | YAMLValidationError):
        place = f"{error.relpath}: " if isinstance(error, YAMLSyntaxError) else f"{error.path}: "
        end = f"{getattr(error, 'hint', '')}. Correct the file, or restore it from git."
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{place}{' '.join(str(error).split()) or type(error).__name__}{end}"
