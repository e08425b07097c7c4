"""The command convert."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands

_FORMATS = ("tokenizer.json", "gguf", "sentencepiece", "vocab-merges")  # FORMATS of convert, whose import is slow


def add_commands(commands: "Commands") -> None:
    """Adds this command to the parser."""
    convert = commands.add_parser(
        "convert",
        help="write a tokenizer in the file format of another program",
        description="Reads a tokenizer, and writes it so that another program gives the same ids. What would give others is an "
        "error that says why.",
        epilog="example: tokenmill convert data/tokenizer served --to gguf",
    )
    convert.add_argument(
        "tokenizer",
        type=Path,
        help="a directory with tokenizer.json, such a file, a .tiktoken file, a SentencePiece .model, a .gguf, a tekken.json, "
        "or a vocab.json with merges.txt beside it",
    )
    convert.add_argument("directory", type=Path, metavar="DIR", help="the directory of the new files")
    convert.add_argument("--to", choices=_FORMATS, default=_FORMATS[0], help="the format (default: %(default)s)")
    convert.add_argument(
        "--pattern", help="how text is split, for a .tiktoken file and a vocab.json: a name or a regex"
    )
    convert.set_defaults(run=_convert)


def _convert(asked: argparse.Namespace) -> Answer:
    from tokenmill.tokenizer.conversions.convert import convert

    files = convert(asked.tokenizer, asked.directory, asked.to, asked.pattern)
    return text({"files": [str(file) for file in files]}, [str(file) for file in files])
