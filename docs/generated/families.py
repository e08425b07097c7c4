"""The table of masks for the chat templates of public model families, from the reviewed masks of the tests."""

from pathlib import Path

from docs.generated.tables import table

MASKS = Path(__file__).parent.parent.parent / "tests" / "chat" / "families.txt"


def page() -> str:
    """A row for each family and a column for each shape of conversation: with which values of `turns` there is a mask."""
    found: dict[str, dict[str, str]] = {}
    for part in MASKS.read_text(encoding="utf-8").split("\n\n"):
        head, *lines = part.splitlines()
        family, shape = head.removeprefix("# ").split(": ")
        found.setdefault(family, {})[shape] = _cell([line.split(None, 1) for line in lines])
    shapes = list(dict.fromkeys(shape for cells in found.values() for shape in cells))
    return table(
        ["", *shapes], ([family, *(cells.get(shape, "") for shape in shapes)] for family, cells in found.items())
    )


def _cell(lines: list[list[str]]) -> str:
    refused = {turns for turns, text in lines if text.startswith("refused: ")}
    masked = {turns for turns, _ in lines} - refused
    if len(masked) == 2 or "both" in masked:
        return "both"
    return masked.pop() if masked else "**no**"
