"""Writes settings into a project's DVC configuration: in UTF-8, which DVC reads, though it writes nothing but ASCII itself."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.regular_files import read


def set_in(path: Path, section: str, values: Mapping[str, Any]) -> None:
    """Sets values of a section of a file such as .dvc/config.local, and keeps everything else in it. A missing file is made. The
    file must be one that DVC can read. Raises OSError."""
    from configobj import ConfigObj

    text = read(path).decode() if path.exists() else ""
    settings = ConfigObj(StringIO(text), encoding="utf-8", interpolation=False)
    if not text:
        settings.indent_type = "    "  # as in the files that DVC makes
    settings.setdefault(section, {}).update(values)
    with write_atomic(path) as partial, partial.open("wb") as file:
        settings.write(file)
