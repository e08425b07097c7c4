"""The command remap."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands


def add_commands(commands: "Commands") -> None:
    """Adds this command to the parser."""
    remap = commands.add_parser(
        "remap",
        help="turn a token dataset into that of a trimmed tokenizer, without the documents",
        description="Renumbers the ids of a dataset for a tokenizer that was trimmed from its own. Where a token is gone, the text "
        "around it is decoded and encoded again. The new dataset has the ids, the splits and the file sets that a build with the "
        "new tokenizer makes, and `tokenmill verify` compares it with the documents.",
        epilog="example: tokenmill remap data/tokens smaller --to trimmed/tokenizer",
    )
    remap.add_argument(
        "dataset", type=_path, metavar="DATASET", help="the folder of a token dataset, with its tables beside it"
    )
    remap.add_argument(
        "directory", type=Path, metavar="DIR", help="a new directory: tokens, tables and tokenizer are in it"
    )
    remap.add_argument(
        "--to", type=Path, required=True, metavar="PATH", help="the trimmed tokenizer: a directory or a file"
    )
    remap.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help="the dataset's tokenizer (default: the folder tokenizer beside it)",
    )
    remap.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="how many files are remapped at the same time (default: one for each core)",
    )
    remap.set_defaults(run=_remap)


def _path(given: str) -> Path:
    from tokenmill_reader.urls import dataset_folder

    return dataset_folder(given)


def _remap(options: argparse.Namespace) -> Answer:
    from tokenmill.arguments import threads_or_all
    from tokenmill.features.trim.remap import lines_of, remap

    remapped = remap(options.dataset, options.to, options.directory, options.tokenizer, threads_or_all(options.threads))
    result = {name: getattr(remapped, name) for name in remapped.__struct_fields__}
    return text({"dataset": str(options.directory / "tokens"), **result}, lines_of(remapped, options.directory))
