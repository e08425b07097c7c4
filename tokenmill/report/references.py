"""Loads the reference tokenizers of a report."""

from collections.abc import Sequence
from pathlib import Path

from tokenmill.errors import ParamsError, TokenizerError
from tokenmill.tokenizer.tokenizer import Tokenizer


def load_references(paths: Sequence[str], root: Path) -> dict[str, Tokenizer]:
    """Loads tokenizers by label. `paths`: relative to `root`. A label is the name of the folder, or of the file without suffix; the
    whole path if names repeat. Raises ParamsError for a path that cannot be loaded."""
    names = [Path(path).name if (root / path).is_dir() else Path(path).stem for path in paths]
    labels = [path if names.count(name) > 1 else name for path, name in zip(paths, names, strict=True)]
    references = {}
    for label, path in zip(labels, paths, strict=True):
        try:
            references[label] = Tokenizer.load(root / path)
        except TokenizerError as error:
            raise ParamsError(
                f"validate.references: {path}",
                f"{error} Expected a folder with tokenizer.json, or such a file; `tokenmill check` looks at one.",
                code="TM102",
            ) from None
    return references
