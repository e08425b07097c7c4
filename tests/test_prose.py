"""Docstrings and comments are sentences: none is a telegram whose missing words a reader has to guess."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TELEGRAM = re.compile(
    r"^(As|Of|Beside|Anew|Is told|Those|The same|What of|Its\b[^.]*\bin)\b"  # a docstring or comment that begins so
    r"|(?<!`)\b(anew|(is|are|be) told|of those|who asks|as of an?)\b|`: of\b"  # or has this anywhere
)


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


@pytest.mark.parametrize("room", ["tokenmill", "reader/tokenmill_reader", "flows", "tasks"])
def test_no_docstring_or_comment_is_a_telegram(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r}: write a full sentence with a verb"
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, text in prose_of(path.read_text(encoding="utf-8"))
        if (match := TELEGRAM.search(" ".join(text.split())))
    ]
    assert not found, "\n".join(found)
