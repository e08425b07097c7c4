"""Finds the tokenizer and tables of a token dataset, in the project or beside a copy."""

from pathlib import Path

from tokenmill.artifacts.golden import GOLDEN_FILE
from tokenmill.errors import TokenizerError
from tokenmill.layout import TOKENIZER_DIRECTORY
from tokenmill.tokenizer.tokenizer import Tokenizer


def beside(dataset: Path, directory: str) -> Path:
    """The folder beside the dataset with the name of a project's folder such as data/tables."""
    return dataset.parent / Path(directory).name


def tokenizer_of(dataset: Path, given: Path | None) -> tuple[Path, Tokenizer]:
    """A dataset's tokenizer with its path: the folder of a tokenizer.json, or a file. `given`: a folder or file elsewhere.

    Raises TokenizerError if there is none."""
    path = given or beside(dataset, TOKENIZER_DIRECTORY)
    if not path.exists():
        raise TokenizerError(
            path, "expected the dataset's tokenizer; nothing is there.", "Copy it there, or name it with --tokenizer."
        )
    loaded = Tokenizer.load(path)
    is_of_a_build = path.name == "tokenizer.json" and (path.parent / GOLDEN_FILE).exists()
    return (path.parent if is_of_a_build else path), loaded


def own_tokenizer(dataset: Path, given: Path | None, digest: str) -> Tokenizer:
    """A dataset's tokenizer, which must have the digest that the manifest says. Raises TokenizerError if there is none, or another.
    `given`: see tokenizer_of."""
    path, loaded = tokenizer_of(dataset, given)
    if loaded.digest != digest:
        raise TokenizerError(
            path,
            f"expected the dataset's tokenizer, {digest[:16]}…; found {loaded.digest[:16]}….",
            "Name the right one with --tokenizer.",
        )
    return loaded
