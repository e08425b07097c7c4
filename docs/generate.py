"""Pages of the documentation that are made from the code and from the records of benchmarks: a hook of MkDocs.

A page that is written by hand may have a line `<!-- generated: NAME -->`; what PARTS has under the name stands there in its place.
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # MkDocs restores it; tokenmill, where it is installed, may be another

from docs.generated import commands, errors, figures, parameters  # noqa: E402
from docs.generated.doctests import Doctests  # noqa: E402

PARTS: dict[str, Callable[[], str]] = {
    "commands": commands.page,
    "parameters": parameters.page,
    "exit-codes": errors.exit_codes,
    "error-codes": errors.codes,
    **{f"figures-{name}": partial(figures.part, name) for name in figures.NAMES},
    "measured-earlier": figures.earlier,
}
_MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$(?:\n.+$)*", flags=re.MULTILINE)
"""A mark, and the lines right below it: they are for readers of the file, and give way to what is generated."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Has examples in docstrings shown as code; MkDocs calls it with the configuration."""
    config.markdown_extensions.append(Doctests())  # type: ignore[arg-type]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are files elsewhere; MkDocs calls it with the pages that are files."""
    for path, file in {"changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}.items():
        content = (ROOT / file).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts in what is generated; MkDocs calls it with the text of each page."""
    return filled(markdown)


def filled(markdown: str) -> str:
    """The page with what is generated in the place of its marks."""
    return _MARK.sub(lambda mark: PARTS[mark[1]](), markdown)
