"""Leftovers of a killed build: temporary files, and files of DVC that were truncated while being written."""

import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from tokenmill.console import say
from tokenmill.layout import (
    COUNTS_FILE,
    DVC_LOCK_FILE,
    DVC_RUNS_DIRECTORY,
    PLOTS_DIRECTORY,
    PREFECT_DIRECTORY,
    QUARANTINE_DIRECTORY,
    REPORT_FILE,
    SCRATCH_DIRECTORY,
    TABLES_DIRECTORY,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
)
from tokenmill.storage.atomic import is_left_over, remove_tree

# The folders where a build makes temporary files, which it then renames.
_FOLDERS = (
    ".",
    str(Path(TOKENS_DIRECTORY).parent),
    TOKENIZER_DIRECTORY,
    str(Path(COUNTS_FILE).parent),
    str(Path(REPORT_FILE).parent),
    PLOTS_DIRECTORY,
    QUARANTINE_DIRECTORY,
    TABLES_DIRECTORY,
    SCRATCH_DIRECTORY,
    f"{SCRATCH_DIRECTORY}/units",
    PREFECT_DIRECTORY,
)
_DVC_FOLDERS = (".dvc/cache", ".dvc/tmp", *_FOLDERS[1:8], TOKENS_DIRECTORY)
_DVC_PARTIAL = re.compile(r".*\.[\w-]{22}\.tmp")  # a copy or link that DVC has not renamed yet


def own(root: Path) -> list[Path]:
    """The temporary files of builds that have ended. Those of a live process are left out."""
    found = chain.from_iterable((root / folder).glob("*.partial") for folder in _FOLDERS)
    return [path for path in found if is_left_over(path)]


def remove_own(root: Path) -> None:
    """Removes the temporary files of builds that have ended."""
    for path in own(root):
        remove_tree(path)


def remove_of_dvc(root: Path) -> None:
    """Removes DVC's temporary files. The caller must hold DVC's lock, so that no process is about to rename one."""
    remove_partials_of_dvc(root / name for name in _DVC_FOLDERS)
    for folder in (root / DVC_RUNS_DIRECTORY).glob("*/*"):
        if not any(folder.iterdir()):  # left by a run that was about to be recorded; an empty one makes DVC fail
            folder.rmdir()


def remove_partials_of_dvc(paths: Iterable[Path]) -> None:
    """Removes DVC's temporary files in these folders, or next to these files. DVC leaves them if a rename fails and it copies
    instead."""
    for path in paths:
        for file in path.rglob("*.tmp") if path.is_dir() else path.parent.glob("*.tmp"):
            if file.is_file() and _DVC_PARTIAL.fullmatch(file.name):
                file.unlink()


def mend_dvc_lock(root: Path) -> None:
    """Removes a dvc.lock that was truncated while DVC wrote it; its stages are restored from DVC's run cache. A file with
    unresolved merge conflicts, or beyond the bounds of YAML, is left to DVC, whose error names it."""
    from ruamel.yaml.error import YAMLError

    from tokenmill.config import bounded_yaml

    path = root / DVC_LOCK_FILE
    try:
        text = path.read_text(encoding="utf-8")
        found = bounded_yaml.load_of_dvc(text)
        whole = isinstance(found, dict) and "schema" in found and isinstance(found.get("stages"), dict)
    except FileNotFoundError:
        return
    except UnicodeDecodeError:
        whole = False
    except bounded_yaml.BoundsError:
        return
    except YAMLError:
        whole = text.startswith("<<<<<<< ") or "\n<<<<<<< " in text
    if not whole:
        path.unlink()
        say(f"{DVC_LOCK_FILE} was truncated when a build was killed. It is written again")
