"""A hook of MkDocs: the pages that are files elsewhere, and examples of docstrings as code."""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # MkDocs restores it; tokenmill, where it is installed, may be another

from docs.generated.doctests import Doctests  # noqa: E402


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Has examples in docstrings shown as code; MkDocs calls it with the configuration."""
    config.markdown_extensions.append(Doctests())  # type: ignore[arg-type]
    return config


PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
"""The pages that are files of the repository's root."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are files elsewhere; MkDocs calls it with the pages that are files."""
    for path, file in PAGES.items():
        content = (ROOT / file).read_text(encoding="utf-8").replace("](docs/", "](").replace('="docs/', '="')
        for name, other in PAGES.items():
            content = content.replace(f"]({other})", f"]({name})")
        files.append(File.generated(config, path, content=content))
    return files
