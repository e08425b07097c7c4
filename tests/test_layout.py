"""Where tests lie, and what they share."""

import ast
from pathlib import Path

TESTS = sorted(Path(__file__).parent.rglob("test_*.py"))


def test_no_test_module_imports_another() -> None:
    """What several of them share is in tests/builders, so that each can be read, moved and deleted alone."""
    names = {path.stem for path in TESTS}
    for path in TESTS:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imported = [f"{getattr(node, 'module', '')}.{one.name}" for one in node.names]
                assert not names & {part for name in imported for part in name.split(".")}, f"{path}:{node.lineno}"
