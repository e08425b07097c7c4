"""The commands about a token dataset: verify and info."""

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.cli.versions import find_params
from tokenmill.errors import EXIT_DONE, EXIT_ERROR, EXIT_NO, ParamsError
from tokenmill.layout import PARAMS_FILE, TOKENS_DIRECTORY

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands

_SHOWN_MAX = 20
_SAMPLE_DOCUMENTS = 32
_EXIT_CODES = {"right": EXIT_DONE, "wrong": EXIT_NO, "not checked": EXIT_ERROR}


def add_commands(commands: "Commands") -> None:
    """Adds the commands to the parser's."""
    verify = commands.add_parser(
        "verify",
        help="check a token dataset, here or on any copy",
        description="Computes again all that the manifest says, from the files themselves: sizes and digests, rows, ids, the ids "
        "that begin and end each document, the tables, and whether every document decodes to its text in the input files. "
        "Exit code 0: right, 1: something is wrong, 2: something could not be checked.",
        epilog="example: tokenmill verify copy/tokens --no-source",
    )
    _add_dataset(verify)
    source = verify.add_mutually_exclusive_group()
    source.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help=f"the folder that the names of the input files start from (default: the nearest with {PARAMS_FILE} above the dataset)",
    )
    source.add_argument("--no-source", action="store_true", help="check the dataset without the documents")
    verify.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help="the dataset's tokenizer (default: the folder tokenizer beside it)",
    )
    verify.add_argument(
        "--sample",
        type=int,
        default=_SAMPLE_DOCUMENTS,
        metavar="N",
        help="documents of each file that tokenizers and tiktoken encode, too (default: %(default)s)",
    )
    verify.add_argument("--seed", type=int, default=0, metavar="N", help="draws that sample (default: %(default)s)")
    verify.add_argument(
        "--threads", type=int, metavar="N", help="files that are checked at a time (default: one a core)"
    )
    verify.set_defaults(run=_verify)
    info = commands.add_parser(
        "info",
        help="say what a token dataset is",
        description="Reads the manifest alone, and answers at once.",
        epilog="example: tokenmill info data/tokens --json",
    )
    _add_dataset(info)
    info.set_defaults(run=_info)


def _add_dataset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dataset",
        type=Path,
        nargs="?",
        metavar="DATASET",
        help=f"the folder of a token dataset (default: {TOKENS_DIRECTORY} of the project)",
    )


def _verify(asked: argparse.Namespace) -> Answer:
    from tokenmill.analysis.verify import lines_of, verify

    for name, least in (("sample", 0), ("threads", 1)):
        if (given := getattr(asked, name)) is not None and given < least:
            raise ParamsError(f"--{name}: found {given}; allowed: {least} or more.")
    dataset = _dataset(asked)
    found = verify(
        dataset,
        asked.tokenizer,
        None if asked.no_source else asked.source or _root_of(dataset),
        asked.sample,
        asked.seed,
        asked.threads or len(os.sched_getaffinity(0)),
    )
    result = {"result": found.result, **dataclasses.asdict(found), "dataset": str(dataset)}
    return text(result, "\n".join(lines_of(found, _SHOWN_MAX)), _EXIT_CODES[found.result])


def _info(asked: argparse.Namespace) -> Answer:
    from tokenmill.analysis.info import as_text, info

    found = info(_dataset(asked))
    return text(found, as_text(found))


def _dataset(asked: argparse.Namespace) -> Path:
    given: Path | None = asked.dataset
    return given or find_params().parent / TOKENS_DIRECTORY


def _root_of(dataset: Path) -> Path:
    """The nearest folder above the dataset that is a project, or else the current folder."""
    above = dataset.absolute().parents
    return next((folder for folder in above if (folder / PARAMS_FILE).is_file()), Path())
