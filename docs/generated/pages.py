"""Writes the parts of pages that are made from the code and the records: `python -m docs.generated.pages`.

A part stands between the lines `<!-- generated: NAME -->` and `<!-- end -->`; PARTS says what makes it.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from docs.generated import commands, contents, errors, families, figures, formats, parameters

ROOT = Path(__file__).parent.parent.parent
PARTS: dict[str, Callable[[], str]] = {
    "contents": contents.tables,
    "commands": commands.page,
    "parameters": parameters.page,
    "sections-again": parameters.sections_again,
    "families": families.page,
    "formats": formats.files,
    "formats-packed": formats.readers,
    "formats-opened": formats.opened,
    "exit-codes": errors.exit_codes,
    "error-codes": errors.codes,
    **{f"figures-{name}": partial(figures.part, name) for name in figures.NAMES},
}
_PART = re.compile(r"^<!-- generated: ([\w-]+) -->$.*?^<!-- end -->$", flags=re.MULTILINE | re.DOTALL)


def main() -> None:
    """Rewrites the pages, and prints the names of those that changed."""
    for path in paths():
        before = path.read_text(encoding="utf-8")
        after = filled(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(path.relative_to(ROOT))


def paths() -> list[Path]:
    """The README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(page: str) -> str:
    """The text of a page with each part as it is made now."""
    return _PART.sub(
        lambda found: f"<!-- generated: {found[1]} -->\n\n{PARTS[found[1]]().strip()}\n\n<!-- end -->", page
    )


if __name__ == "__main__":
    main()
