"""Reads the page of every error code from error_pages.toml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class ErrorPage:
    """The page of one code. `title`: a few words; `meaning`: what has happened; `advice`: what to do."""

    title: str
    meaning: str
    advice: str


@cache
def error_pages() -> Mapping[str, ErrorPage]:
    """The page of every code, in the order of the codes; each text in one line."""
    import tomllib  # takes some milliseconds, and most commands end without an error

    pages = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {
        code: ErrorPage(**{name: " ".join(text.split()) for name, text in page.items()}) for code, page in pages.items()
    }
