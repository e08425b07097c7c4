"""Checks the files that Prefect reads its settings from: an import of Prefect with a broken one ends in a traceback."""

import os
import tomllib
from pathlib import Path
from typing import Any

from tokenmill.errors import ParamsError
from tokenmill_reader.regular_files import read

_SECTIONS: dict[str, tuple[str, ...]] = {"prefect.toml": (), "pyproject.toml": ("tool", "prefect")}
"""The files in the working directory, with the table of each that has the settings."""
_PROFILES = "profiles.toml"
_FIX = "Correct the file, or move it away: without it, Prefect's defaults hold."


def check_files() -> None:
    """Raises ParamsError for a file of settings, or of profiles, that is no TOML or whose tables are no tables, and for a .env that
    is no UTF-8."""
    if Path(".env").is_file():  # it may be the folder of a virtual environment
        _text(Path(".env"))
    named = None
    for name, section in _SECTIONS.items():
        settings: Any = _tables(Path(name))
        for key in section:
            settings = _table(settings.get(key, {}), Path(name), key)
        named = named or settings.get("profiles_path")
    home = Path(os.environ.get("PREFECT_HOME") or Path("~/.prefect").expanduser())
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or named or home / _PROFILES)
    listed = _table(_tables(profiles).get("profiles", {}), profiles, "profiles")
    for name, values in listed.items():
        _table(values, profiles, f"profiles.{name}")


def _tables(path: Path) -> dict[str, Any]:
    """The content of a TOML file; nothing if it is missing."""
    try:
        return tomllib.loads(_text(path))
    except ValueError as error:
        raise ParamsError(path.absolute(), f"Prefect's settings: expected TOML; {error}.", _FIX) from None


def _text(path: Path) -> str:
    try:
        return read(path).decode()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise ParamsError(path.absolute(), f"Prefect's settings cannot be read: {error.strerror}.", _FIX) from None
    except UnicodeDecodeError as error:
        raise ParamsError(path.absolute(), f"Prefect's settings: expected UTF-8; {error}.", _FIX) from None


def _table(value: Any, path: Path, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParamsError(path.absolute(), f"Prefect's settings: {key}: expected a table; found {value!r:.40}.", _FIX)
    return value
