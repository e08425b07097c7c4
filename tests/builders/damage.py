"""What somebody does to a project's files behind its back."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic

from tests.conftest import Project
from tokenmill.dataset.manifest import Manifest, write_manifest


def edit_manifest(project: Project, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the dataset's manifest, and its own digest with it where it is still a manifest."""
    path = project.root / "data/tokens/manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.unlink()
    try:
        write_manifest(Manifest.model_validate(manifest), path.parent)
    except pydantic.ValidationError:
        path.write_text(json.dumps(manifest), encoding="utf-8")


def cached(project: Project, name: str) -> Path:
    """DVC's copy of an output."""
    files = [path for path in (project.root / ".dvc/cache/files").rglob("*") if path.is_file()]
    [path] = [path for path in files if path.read_bytes() == (project.root / name).read_bytes()]
    return path


def flip_a_byte(path: Path) -> None:
    """So that neither mode, length nor time tells."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(0o444)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
