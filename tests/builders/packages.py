"""Packages of others as Python finds them installed."""

from pathlib import Path


def write_dist_info(folder: Path, name: str, version: int, door: str, *entries: str) -> None:
    """Makes a package in a folder that Python searches an installed one, with these lines as its entry points at a door."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = "\n".join([f"[tokenmill.{door}]", *entries])
    (info / "entry_points.txt").write_text(f"{lines}\n", encoding="utf-8")
