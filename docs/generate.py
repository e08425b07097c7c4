"""Pages of the documentation that are made from the code: a hook of MkDocs."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages; MkDocs calls it with the pages that are files."""
    for path, content in {"changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")}.items():
        files.append(File.generated(config, path, content=content))
    return files
