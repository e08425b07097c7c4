"""The commands explain and completion."""

import argparse
import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from tokenmill.cli.answer import Answer, text
from tokenmill.error_pages import error_pages
from tokenmill.errors import UsageError, did_you_mean
from tokenmill.layout import STAGES

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands, Parser

SHELLS = ("bash", "zsh", "fish")
_WIDTH = 100
_FOLDERS = ("DIR",)  # the metavars of arguments that are folders


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    explain = commands.add_parser(
        "explain",
        help="say what an error code means and what to do",
        description="Prints the page of an error code. Without a code, lists all codes.",
        epilog="example: tokenmill explain TM203",
    )
    explain.add_argument("error_code", nargs="?", metavar="CODE", help="a code like TM203, as an error shows it")
    explain.set_defaults(run=_explain)
    completion = commands.add_parser(
        "completion",
        help="print the completion of commands and options for a shell",
        description="Prints a script for the shell to read. bash: source <(tokenmill completion bash); zsh: write it to a file "
        "_tokenmill in a folder of $fpath; fish: write it to ~/.config/fish/completions/tokenmill.fish.",
        epilog="example: tokenmill completion bash > ~/.local/share/bash-completion/completions/tokenmill",
    )
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    completion.set_defaults(run=partial(_completion, commands.parser))


def _explain(options: argparse.Namespace) -> Answer:
    pages = error_pages()
    if options.error_code is None:
        return text(
            {code: dataclasses.asdict(page) for code, page in pages.items()},
            [f"{code}  {page.title}" for code, page in pages.items()],
        )
    code = options.error_code.upper()
    code = f"TM{code}" if code.isdecimal() else code
    if code not in pages:
        raise UsageError(
            f"explain: there is no code {options.error_code!r}.{did_you_mean(code, pages)} `tokenmill explain` lists all."
        )
    page = pages[code]
    meaning, advice = wrap(page.meaning, _WIDTH), wrap(page.advice, _WIDTH)
    lines = [f"{code}: {page.title}", "", *meaning, "", "What to do:", "", *advice]
    return text({"code": code, **dataclasses.asdict(page)}, lines)


def _completion(parser: "Parser", options: argparse.Namespace) -> Answer:
    import shtab

    for one in (parser, *parser.commands.values()):
        _complete_values(one, shtab.FILE, shtab.DIRECTORY)
        one.description = one.summary or one.description  # one line
    script = shtab.complete(parser, options.shell)
    return Answer({"shell": options.shell, "script": script}, lambda: print(script.rstrip("\n")))


def _complete_values(parser: "Parser", files: Mapping[str, Any], folders: Mapping[str, Any]) -> None:
    values = {"--only": STAGES, "error_code": tuple(error_pages())}
    for action in parser._actions:  # argparse has no public list of them
        # They are for the script alone: a project may have stages of its own, and `explain` takes 203 for TM203.
        action.choices = values.get(next(iter(action.option_strings), action.dest), action.choices)
        if action.type is Path or action.metavar == "DATASET":
            action.complete = folders if action.metavar in _FOLDERS else files  # type: ignore[attr-defined]
