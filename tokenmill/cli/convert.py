"""The command convert."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands

_FORMATS = (
    "tokenizer.json",
    "gguf",
    "sentencepiece",
    "tekken",
    "vocab-merges",
)  # FORMATS of convert, whose import is slow


def add_commands(commands: "Commands") -> None:
    """Adds this command to the parser."""
    convert = commands.add_parser(
        "convert",
        help="write a tokenizer in the file format of another program",
        description="Reads a tokenizer, and writes it so that another program gives the same ids. Where a format "
        "cannot hold it, the error says why.",
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
    from tokenmill.tokenizer.conversions.convert import read_form, write_form
    from tokenmill.tokenizer.conversions.gguf import PATTERNS
    from tokenmill.tokenizer.conversions.llama_cpp_hash import lines_for_converter

    form = read_form(asked.tokenizer, asked.pattern)
    files = [str(file) for file in write_form(form, asked.directory, asked.to)]
    if asked.to != "gguf" or form.tokenizer.model is None:
        return text({"files": files}, files)
    lines = lines_for_converter(form, PATTERNS[form.tokenizer.pattern or ""])
    about = "For a model with this tokenizer, put into get_vocab_base_pre of llama.cpp's conversion/base.py, unless it is there:"
    return text({"files": files, "converter": lines}, [*files, about, *lines])
