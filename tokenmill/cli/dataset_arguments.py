"""The arguments of commands that read a token dataset."""

import argparse
from pathlib import Path

from tokenmill.cli.versions import find_params
from tokenmill.layout import TOKENS_DIRECTORY

MANIFEST_FILE = "manifest.json"  # as in tokenmill.dataset.manifest, whose import takes half a second


def add_dataset(parser: argparse.ArgumentParser, or_url: bool = False) -> None:
    """Adds the dataset as an argument that may be left out. `or_url`: it may be a URL, too."""
    parser.add_argument(
        "dataset",
        type=path_or_url if or_url else dataset_path,
        nargs="?",
        metavar="DATASET",
        help=f"the folder of a token dataset{', or the URL that `upload` printed' if or_url else ''} "
        f"(default: {TOKENS_DIRECTORY} of the project)",
    )


def path_or_url(text: str) -> Path | str:
    """What an argument names: a path, or a URL in object storage. Raises StorageError."""
    from tokenmill.storage.anywhere import place_of
    from tokenmill_reader.urls import is_url, local_path

    return place_of(text) if is_url(text) else Path(local_path(text))


def dataset_path(text: str) -> Path:
    """The folder of a dataset that an argument names."""
    from tokenmill_reader.urls import dataset_folder

    return dataset_folder(text)


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """Adds the option --tokenizer."""
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help="the dataset's tokenizer (default: the folder tokenizer beside it)",
    )


def dataset_of(options: argparse.Namespace) -> Path | str:
    """The dataset that was asked for."""
    given: Path | str = options.dataset or find_params().parent / TOKENS_DIRECTORY
    return given if isinstance(given, str) else with_manifest(given) or given


def with_manifest(folder: Path) -> Path | None:
    """The dataset in a folder: itself, or that of a download or a project; None if there is none."""
    inside = (folder, folder / Path(TOKENS_DIRECTORY).name, folder / TOKENS_DIRECTORY)
    return next((one for one in inside if (one / MANIFEST_FILE).exists()), None)
