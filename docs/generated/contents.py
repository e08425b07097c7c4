"""The lists of pages of index.md, from the nav of mkdocs.yml and each page's title and first sentence."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML

from docs.generated.tables import table

ROOT = Path(__file__).parent.parent.parent


class Group(NamedTuple):
    """A group of the nav. `pages`: paths below docs/ by title."""

    name: str
    pages: dict[str, str]


def tables() -> str:
    """A table for each group of guides: each page, and its first sentence. Then the other pages, a line a group."""
    parts = []
    for name, pages in groups():
        if name in ("Reference", "Design"):
            parts.append(f"**{name}:** {_links(pages, '')}\n")
        else:
            rows = ([f"[{title}]({path})", first_sentence(path)] for title, path in pages.items())
            parts.append(f"### {name}\n\n{table(['page', 'what it says'], rows)}")
    return "\n".join(parts)


def groups() -> Iterator[Group]:
    """The groups of the nav, in order."""
    nav = YAML(typ="safe", pure=True).load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    for entry in nav:
        for name, pages in entry.items():
            if isinstance(pages, list):
                yield Group(name, {title: path for one in pages for title, path in one.items()})


def first_sentence(path: str) -> str:
    """The first sentence of a page, without links."""
    paragraph = (ROOT / "docs" / path).read_text(encoding="utf-8").split("\n\n")[1]
    plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=\.) ", plain)[0]


def _links(pages: dict[str, str], folder: str) -> str:
    return " · ".join(f"[{title}]({folder}{path})" for title, path in pages.items())
