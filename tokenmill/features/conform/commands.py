"""The command conform."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.errors import ParamsError, did_you_mean

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands


def add_commands(commands: "Commands") -> None:
    """Adds the command to the parser's."""
    conform = commands.add_parser(
        "conform",
        help="compare a tokenizer's ids in every library that is installed here",
        usage="%(prog)s [-h] [--json] [-q] [-v] [--debug] tokenizer [--with NAME [NAME ...]]",
        description="Encodes golden vectors, 2,000 generated texts and, with a chat template, 50 conversations in each library, "
        "which runs in a process of its own. Exit code 0: all ids are the same, 1: a library gives other ids, 2: one that --with "
        "names is not installed or cannot be compared, or there is none.",
        epilog="example: tokenmill conform data/tokenizer --with transformers tiktoken",
    )
    conform.add_argument(
        "tokenizer", type=Path, help="a directory with tokenizer.json, or such a file without those beside it"
    )
    conform.add_argument(
        "--with", dest="names", nargs="+", metavar="NAME", help="compare these libraries (default: all that are known)"
    )
    conform.set_defaults(run=_conform)


def _conform(options: argparse.Namespace) -> Answer:
    from tokenmill.features.conform.libraries import conform
    from tokenmill.features.conform.program.compare import exit_code, lines_of
    from tokenmill.features.conform.program.consumers import CONSUMERS

    names = list(dict.fromkeys(options.names or CONSUMERS))
    if unknown := [name for name in names if name not in CONSUMERS]:
        hint = did_you_mean(unknown[0], CONSUMERS)
        raise ParamsError("--with", f"found {unknown[0]!r}; allowed: {', '.join(CONSUMERS)}.", hint)
    found = conform(options.tokenizer, names)
    return text([one._asdict() for one in found], lines_of(found), exit_code(found, bool(options.names)))
