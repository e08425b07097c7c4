"""The commands check and convert."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.errors import EXIT_DONE, EXIT_NO, ParamsError
from tokenmill.features import PARTS

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands

_FORMATS = ("tokenizer.json", *PARTS["tokenizer_formats"])  # FORMATS of convert.py, whose import is slow


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    check = commands.add_parser(
        "check",
        help="say what a tokenizer file is, what is odd about it, and which engine would run it",
        usage="%(prog)s [-h] [--json] [-q] [-v] [--debug] tokenizer [--pattern PATTERN] \n"
        "       [--against FILES [FILES ...] [--text-column NAME] [--text-separator TEXT] [--special {as_text,allow}]]",
        description="Loads a tokenizer as a build would, without a project. Fails if a build would refuse the tokenizer. With "
        "--against, compares its ids with those of the tokenizers library instead, document by document up to the first "
        "difference; exit code 0: all are equal, 1: a difference, 2: an error.",
        epilog="example: tokenmill check data/tokenizer --against data/raw",
    )
    check.add_argument("tokenizer", type=Path, help="a directory with tokenizer.json, such a file, or a .tiktoken file")
    check.add_argument("--pattern", help="how a .tiktoken file's text is split: a name or a regex")
    check.add_argument(
        "--against",
        nargs="+",
        metavar="FILES",
        help="files of documents, or folders of them; name the tokenizer before",
    )
    for name, metavar, words in (
        (
            "--text-column",
            "NAME",
            "with --against: the column of the text (default: the first of text, content and body)",
        ),
        ("--text-separator", "TEXT", "with --against: what separates the documents of a .txt file"),
    ):
        check.add_argument(name, metavar=metavar, help=words)
    check.add_argument(
        "--special", choices=["as_text", "allow"], help="with --against: special tokens in text (default: as_text)"
    )
    check.set_defaults(run=_check)
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


def _convert(options: argparse.Namespace) -> Answer:
    from tokenmill.features.convert.convert import read_form, write_form
    from tokenmill.features.convert.formats.gguf import PATTERNS
    from tokenmill.features.convert.formats.llama_cpp_hash import lines_for_converter

    form = read_form(options.tokenizer, options.pattern)
    files = [str(file) for file in write_form(form, options.directory, options.to)]
    if options.to != "gguf" or form.tokenizer.model is None:
        return text({"files": files}, files)
    lines = lines_for_converter(form, PATTERNS[form.tokenizer.pattern or ""])
    about = "For a model with this tokenizer, put into get_vocab_base_pre of llama.cpp's conversion/base.py, unless it is there:"
    return text({"files": files, "converter": lines}, [*files, about, *lines])


def _check(options: argparse.Namespace) -> Answer:
    asked_of_files = {
        "--text-column": options.text_column,
        "--text-separator": options.text_separator,
        "--special": options.special,
    }
    for name, value in asked_of_files.items():
        if value is not None and (value == "" or options.against is None):
            what = (
                "expected a text that is not empty."
                if value == ""
                else "says how files are compared, and none are named."
            )
            raise ParamsError(name, what, "Correct it, or name files with --against.")
    if options.against is not None:
        from tokenmill.features.convert.against_library import compare

        result, lines = compare(
            options.tokenizer,
            options.pattern,
            options.against,
            options.text_column,
            options.text_separator,
            options.special or "as_text",
        )
        return text(result, lines, EXIT_DONE if result["difference"] is None else EXIT_NO)
    from tokenmill.features.convert.inspect import check_tokenizer, lines_of

    result = check_tokenizer(options.tokenizer, options.pattern)
    return text(result, lines_of(result, str(options.tokenizer)))
