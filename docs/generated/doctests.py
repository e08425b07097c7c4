"""Examples of docstrings as code: Python-Markdown reads `>>>` as a quotation in a quotation in a quotation."""

from collections.abc import Iterator
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor


class Doctests(Extension):
    """An extension of Python-Markdown: from a line with `>>> ` to the next empty one is a fenced block of code."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Registers the preprocessor, before the one for fenced blocks."""
        md.preprocessors.register(_Fence(md), "doctests", 60)


class _Fence(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return list(fenced(lines))


def fenced(lines: list[str], **_: Any) -> Iterator[str]:
    """The lines, with fences around examples.

    >>> list(fenced(["So:", "", ">>> 1 + 1", "2", "", "That."]))
    ['So:', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'That.']
    """
    is_inside = False
    for line in lines:
        if not is_inside and line.startswith(">>> "):
            is_inside = True
            yield "```pycon"
        if is_inside and not line.strip():
            is_inside = False
            yield "```"
        yield line
    if is_inside:
        yield "```"
