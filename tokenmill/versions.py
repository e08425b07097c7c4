"""DVC's part in a build: which stages are stale, which come back from the run cache, and the record of those that ran.

All of it runs in process: a status is 0.1 s, `dvc repro` with a subprocess a stage costs 3 s a stage. The dvc.lock that
results is the one `dvc repro` writes. Under `dvc repro` (DVC_STAGE is set) none of this is called: DVC holds locks on
the stage's paths and records the result itself.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from tokenmill.errors import VersionsError

State = Literal["current", "frozen", "stale"]

_SITE_CACHE = Path(".dvc/tmp/site-cache")


def quiet_environment() -> None:
    """Turns telemetry and update checks of DVC and Prefect off; only works before they are imported."""
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")


class Stage:
    """One stage of the project's dvc.yaml, as `opened` yields it. All methods raise VersionsError."""

    def __init__(self, repo: Any, name: str) -> None:
        self._repo = repo
        self._name = name
        self._stage = _load(repo, name)

    def state(self) -> State:
        """Whether the stage's outputs belong to its dependencies and parameters as they are now.

        "frozen" is DVC's word for a stage that is not to run; its staleness is not looked at.
        """
        if self._stage.frozen:
            return "frozen"
        with self._repo.lock:
            return "stale" if self._stage.status(check_updates=True) else "current"

    def restore(self) -> bool:
        """Brings the outputs back from DVC's run cache, if the stage has run with these inputs before, and records it."""
        from dvc.stage.cache import RunCacheNotFoundError

        try:
            with self._repo.lock:
                self._repo.stage_cache.restore(self._stage)
        except RunCacheNotFoundError:
            return False
        except FileNotFoundError:  # the run is known, its outputs have left the cache
            return False
        self._repo.commit(f"{_pipeline(self._repo.root_dir)}:{self._name}", force=True)
        return True

    def data_dependencies(self) -> list[Path]:
        """The absolute paths that dvc.yaml names as dependencies, but for parameters."""
        return [Path(dep.fs_path) for dep in self._stage.deps if hasattr(dep, "fs_path") and not _is_params(dep)]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Removes the outputs, lets the block make them, and records them with the inputs they were made from.

        Raises VersionsError, and records nothing, when an input changed while the block ran.
        """
        with self._repo.lock:
            _save_dependencies(self._stage)
            self._stage.remove_outs(ignore_remove=False, force=False)
        yield
        fresh = _load(self._repo, self._name)
        with self._repo.lock:
            _save_dependencies(fresh)
            changed = [
                str(before)
                for before, after in zip(self._stage.deps, fresh.deps, strict=True)
                if before.hash_info != after.hash_info
            ]
            if changed:
                raise VersionsError(
                    f"stage {self._name}: {', '.join(changed)} changed while the stage ran; nothing was recorded. "
                    "Run `tokenmill build` again when the inputs are at rest."
                )
            fresh.save_outs()
            fresh.md5 = fresh.compute_md5()
            self._repo.stage_cache.save(fresh)
            fresh.commit()
            fresh.dump(update_pipeline=False)


@contextmanager
def opened(root: Path, stage: str) -> Iterator[Stage]:
    """The stage of the project at `root`. Raises VersionsError, also for what DVC finds wrong inside the block."""
    with repository(root) as repo:
        yield Stage(repo, stage)


def _is_params(dependency: Any) -> bool:
    from dvc.dependency.param import ParamsDependency

    return isinstance(dependency, ParamsDependency)


def _load(repo: Any, name: str) -> Any:
    from dvc.stage.exceptions import StageFileDoesNotExistError, StageNotFound

    try:
        return repo.stage.load_one(path=_pipeline(repo.root_dir), name=name)
    except (StageNotFound, StageFileDoesNotExistError):
        raise VersionsError(
            f"dvc.yaml: expected a stage {name!r} in {repo.root_dir}. Take this project's dvc.yaml as it was delivered."
        ) from None


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
    from dvc.exceptions import DvcException, NotDvcRepoError
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.CRITICAL)  # its progress bars and hints to type dvc commands
    logging.getLogger("dvc_data").setLevel(logging.CRITICAL)
    logging.getLogger("dvc_objects").setLevel(logging.CRITICAL)
    try:
        _keep_site_cache_private(root)
        with Repo(str(root)) as repo:
            yield repo
    except NotDvcRepoError:
        raise VersionsError(f"{root}: not a DVC repository. Run `git init && dvc init` there.") from None
    except DvcException as error:
        raise VersionsError(f"DVC: {_innermost(error)}") from error


def _keep_site_cache_private(root: Path) -> None:
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


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
