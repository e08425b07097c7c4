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


def state(root: Path, stage: str) -> State:
    """Whether the stage's outputs belong to its dependencies and parameters as they are now.

    "frozen" is DVC's word for a stage that is not to run; its staleness is not looked at. Raises VersionsError.
    """
    with _repository(root) as repo:
        if _stage(repo, stage).frozen:
            return "frozen"
        return "stale" if repo.status(targets=[f"{_pipeline(root)}:{stage}"]) else "current"


def restore(root: Path, stage: str) -> bool:
    """Brings the stage's outputs back from DVC's run cache, if it has run with these inputs before, and records it."""
    from dvc.stage.cache import RunCacheNotFoundError

    with _repository(root) as repo:
        loaded = _stage(repo, stage)
        try:
            with repo.lock:
                repo.stage_cache.restore(loaded)
        except RunCacheNotFoundError:
            return False
        except FileNotFoundError:  # the run is known, its outputs have left the cache
            return False
        repo.commit(f"{_pipeline(root)}:{stage}", force=True)
    return True


@contextmanager
def recording(root: Path, stage: str) -> Iterator[None]:
    """Removes the stage's outputs, lets the block make them, and records them with the inputs they were made from.

    Raises VersionsError, and records nothing, when an input changed while the block ran.
    """
    with _repository(root) as repo:
        pinned = _stage(repo, stage)
        with repo.lock:
            _save_dependencies(pinned)
            pinned.remove_outs(ignore_remove=False, force=False)
    yield
    with _repository(root) as repo:
        fresh = _stage(repo, stage)
        with repo.lock:
            _save_dependencies(fresh)
            changed = [
                str(before)
                for before, after in zip(pinned.deps, fresh.deps, strict=True)
                if before.hash_info != after.hash_info
            ]
            if changed:
                raise VersionsError(
                    f"stage {stage}: {', '.join(changed)} changed while the stage ran; nothing was recorded. "
                    "Run `tokenmill build` again when the inputs are at rest."
                )
            fresh.save_outs()
            fresh.md5 = fresh.compute_md5()
            repo.stage_cache.save(fresh)
            fresh.commit()
            fresh.dump(update_pipeline=False)


def data_dependencies(root: Path, stage: str) -> list[Path]:
    """The absolute paths that dvc.yaml names as the stage's dependencies, but for parameters."""
    with _repository(root) as repo:
        return [
            Path(dep.fs_path) for dep in _stage(repo, stage).deps if hasattr(dep, "fs_path") and not _is_params(dep)
        ]


def _is_params(dependency: Any) -> bool:
    from dvc.dependency.param import ParamsDependency

    return isinstance(dependency, ParamsDependency)


def _stage(repo: Any, name: str) -> Any:
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
def _repository(root: Path) -> Iterator[Any]:
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
