"""The page of the command line, from its parser."""

import argparse
import itertools
import re
from collections.abc import Iterator

from docs.generated.tables import code, table
from tokenmill.cli.main import make_parser
from tokenmill.cli.parser import GROUPS


def page(parser: argparse.ArgumentParser | None = None) -> str:
    """A table of the commands, then a section for each; what every command takes stands once, at the end."""
    parser = parser or make_parser()
    found = commands_of(parser)
    shared = _shared(list(found.values()))
    some = next(iter(found.values()))
    summaries = {one.dest: one.help or "" for one in _subparsers(parser)._choices_actions}
    parts = [
        table(
            ["command", "what it does"], ([f"[`{name}`](#tokenmill-{name})", summaries.get(name, "")] for name in found)
        ),
        *("\n".join(_section(name, one, shared)) for name, one in found.items()),
        "## Options of every command\n",
        table(
            ["option", "meaning"],
            (
                _option(action)
                for action in [*_optional(some, shared, of_all=True), *_optional(parser, shared, of_all=False)]
            ),
        ),
    ]
    return "\n".join(parts)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands' parsers by name, in the order of the help."""
    places = {name: i for i, name in enumerate(itertools.chain(*GROUPS.values()))}
    return dict(sorted(_subparsers(parser).choices.items(), key=lambda one: places.get(one[0], len(places))))


def _subparsers(parser: argparse.ArgumentParser) -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    return next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))


def _shared(parsers: list[argparse.ArgumentParser]) -> set[tuple[str, ...]]:
    """The options that every command has, with the same meaning."""
    by_parser = [{(*one.option_strings, one.help or "") for one in parser._actions} for parser in parsers]
    return {one[:-1] for one in set.intersection(*by_parser) if len(one) > 1}


def _section(name: str, parser: argparse.ArgumentParser, shared: set[tuple[str, ...]]) -> Iterator[str]:
    yield f"## tokenmill {name}\n"
    yield f"{parser.description}\n"
    yield f"```text\n{_usage(parser)}\n```\n"
    arguments = [one for one in parser._actions if not one.option_strings]
    if arguments:
        yield table(["argument", "meaning"], ([code(_metavar(one)), _sentence(one.help)] for one in arguments))
    options = list(_optional(parser, shared, of_all=False))
    if options:
        yield table(["option", "meaning"], (_option(one) for one in options))
    if parser.epilog:
        yield f"Example:\n\n```console\n$ {parser.epilog.removeprefix('example: ')}\n```\n"


def _optional(parser: argparse.ArgumentParser, shared: set[tuple[str, ...]], of_all: bool) -> Iterator[argparse.Action]:
    """The options of a command that every command has, or those that not every one has."""
    for one in parser._actions:
        if one.option_strings and (tuple(one.option_strings) in shared) == of_all:
            yield one


def _option(action: argparse.Action) -> list[str]:
    value = f" {_metavar(action)}" if action.nargs != 0 else ""
    needed = " It must be given." if action.required else ""
    help = (action.help or "").replace("%(default)s", str(action.default))
    return [", ".join(code(name + value) for name in action.option_strings), _sentence(help) + needed]


def _metavar(action: argparse.Action) -> str:
    found = action.metavar or action.dest
    return str(found if action.metavar or not action.option_strings else found.upper())


def _sentence(help: str | None) -> str:
    text = (help or "").replace("%(prog)s", "tokenmill")
    text = text.replace("show program's version number and exit", "print the version and end")
    text = text.replace("show this help message and exit", "print the help of the command and end")
    begins_with_url = "://" in text.split(" ")[0]
    return (text if begins_with_url else text[:1].upper() + text[1:]) + ("" if text.endswith(".") else ".")


def _usage(parser: argparse.ArgumentParser) -> str:
    return re.sub(r"\s+", " ", parser.format_usage().removeprefix("usage: ")).strip()
