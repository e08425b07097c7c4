"""The commands verify and info."""

import argparse
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.answer import Answer, text
from tokenmill.cli.dataset_arguments import add_dataset, add_tokenizer, dataset_of
from tokenmill.errors import EXIT_DONE, EXIT_ERROR, EXIT_NO, CorpusError, ParamsError
from tokenmill.features import PARTS, load
from tokenmill.layout import PARAMS_FILE, TOKENS_DIRECTORY

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands

_SHOWN_MAX = 20
_SAMPLE_DOCUMENTS = 64
_M_TOP_PAD = -2  # of malloc.h
_TOP_PAD_BYTES = 1 << 26  # 55,000 page faults in 2 GB of text; with half of it 90,000 to 640,000
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
    add_dataset(verify, or_url=True)
    source = verify.add_mutually_exclusive_group()
    source.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help=f"the folder that the names of the input files start from (default: the nearest with {PARAMS_FILE} above the dataset)",
    )
    source.add_argument("--no-source", action="store_true", help="check the dataset without the documents")
    verify.add_argument("--no-tables", action="store_true", help="check the dataset without the tables beside it")
    add_tokenizer(verify)
    verify.add_argument(
        "--sample",
        type=int,
        default=_SAMPLE_DOCUMENTS,
        metavar="N",
        help="how many documents tokenizers and tiktoken encode, too (default: %(default)s)",
    )
    verify.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the seed that draws that sample (default: %(default)s)"
    )
    verify.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="how many files are checked at the same time (default: one for each core)",
    )
    verify.set_defaults(run=_verify)
    info = commands.add_parser(
        "info",
        help="say what a token dataset is",
        description="Reads the manifest alone, and answers at once.",
        epilog="example: tokenmill info data/tokens --json",
    )
    add_dataset(info, or_url=True)
    info.set_defaults(run=_info)


def _keep_freed_memory() -> None:
    """Makes glibc keep the memory that is freed after each batch of documents for the next batch, in place of returning it to the
    system: verify is 1.25 times as fast with it, and takes 20 MB more with two threads. A build does not do this, because it
    would take more than run.memory_mb_max."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries lack it
    if mallopt is not None and not os.environ.keys() & {"MALLOC_TOP_PAD_", "GLIBC_TUNABLES"}:
        mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)


def _verify(options: argparse.Namespace) -> Answer:
    _keep_freed_memory()
    from tokenmill.analysis.verify import VerifyOptions, lines_of, verify

    for name, least in (("sample", 0), ("threads", 1)):
        if (given := getattr(options, name)) is not None and given < least:
            raise ParamsError(f"--{name}", f"found {given}; allowed: {least} or more.")
    if options.source is not None and not options.source.is_dir():
        raise ParamsError(
            f"--source: {options.source}", "expected a folder; there is none.", "Name the folder of the documents."
        )
    dataset = dataset_of(options)
    here = Path.cwd() if isinstance(dataset, str) else dataset.absolute().parent
    verdict = verify(
        dataset,
        VerifyOptions(
            options.tokenizer,
            None if options.no_source else options.source or _root_of(here),
            options.sample,
            options.seed,
            options.threads or len(os.sched_getaffinity(0)),
            not options.no_tables,
        ),
    )
    result = {"result": verdict.result, **dataclasses.asdict(verdict), "dataset": str(dataset)}
    *lines, last = lines_of(verdict, _SHOWN_MAX)
    for name, answer in _found_by_features(options, dataset, here):
        result[name] = dataclasses.asdict(answer)
        lines += answer.lines()
    return text(result, [*lines, last], _EXIT_CODES[verdict.result])


def _found_by_features(options: argparse.Namespace, dataset: Path | str, here: Path) -> Iterator[tuple[str, Any]]:
    """Yields what features find in the project, by their names; nothing unless the dataset is the project's own and its documents
    are checked."""
    root = _root_of(here)
    is_own = isinstance(dataset, Path) and dataset.absolute() == (root / TOKENS_DIRECTORY).absolute()
    if not is_own or options.no_source or options.source is not None or not (root / PARAMS_FILE).is_file():
        return
    from tokenmill.config.load_params import load_params

    for name, part in PARTS["verify"].items():
        try:
            answer = load(part)(root, load_params(root / PARAMS_FILE))
        except (CorpusError, ParamsError):  # the verdict says that source.drop could not be checked
            continue
        if answer is not None:
            yield name, answer


def _info(options: argparse.Namespace) -> Answer:
    from tokenmill.analysis.info import info, lines_of

    found = info(dataset_of(options))
    return text(found, lines_of(found))


def _root_of(here: Path) -> Path:
    """The nearest folder from `here` upwards that is a project, or else the current folder."""
    return next((folder for folder in (here, *here.parents) if (folder / PARAMS_FILE).is_file()), Path())
