"""The command params."""

import argparse
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands
    from tokenmill.project.parameters import Key

_WIDTH_MAX = 132


def add_commands(commands: "Commands") -> None:
    """Adds this command to the parser."""
    params = commands.add_parser(
        "params",
        help="list the keys of params.yaml, or explain one",
        description="Prints the keys of params.yaml with defaults and meanings: all keys, or those of a section. Of one key also "
        "its type, an example, and the stages that a change runs again.",
        epilog="example: tokenmill params encode.pack",
    )
    params.add_argument("key", nargs="?", metavar="KEY", help="a section like encode, or a key like encode.pack")
    params.set_defaults(run=_params)


def _params(options: argparse.Namespace) -> Answer:
    from tokenmill.project.parameters import keys, sections

    name: str | None = options.key
    if name is not None and name not in {**keys(), **sections()}:
        raise UsageError(f"params: there is no key {name!r}.{_near(name)} `tokenmill params` lists all keys.")
    chosen = {
        key_name: key for key_name, key in keys().items() if name is None or f"{key_name}.".startswith(f"{name}.")
    }
    width = min(get_terminal_size((_WIDTH_MAX, 24)).columns, _WIDTH_MAX)
    lines: list[str] = []
    for around in sections() if name is None else [name]:
        if name in chosen:
            lines += _page(name, chosen[name], width)
        else:
            lines += ["", *wrap(f"{around}: {sections()[around]}", width)]
        lines += _table(around, chosen, width, lines_max=1 if name is None else None)
    return text({key_name: dataclasses.asdict(key) for key_name, key in chosen.items()}, _plain(lines))


def _near(name: str) -> str:
    """A sentence with the keys of the same last part, or else with the nearest name; empty if there is none."""
    from tokenmill.project.parameters import keys, sections

    last = name.rpartition(".")[2]
    same = [key for key in keys() if key.rpartition(".")[2] == last]
    return f" Did you mean {' or '.join(same)}?" if same else did_you_mean(name, [*keys(), *sections()])


def _page(name: str, key: "Key", width: int) -> Iterator[str]:
    """The lines about one key."""
    facts = {
        "type": key.type,
        "default": "none: it must be given" if key.default is None else key.default,
        "example": key.example,
        "runs again": ", ".join(key.stages) or "no stage",
    }
    yield from wrap(f"{name}: {key.meaning}", width)
    yield ""
    for fact, words in facts.items():
        yield from wrap(f"  {fact:<10}  {words}", width, subsequent_indent=" " * 14)


def _table(around: str, chosen: Mapping[str, "Key"], width: int, lines_max: int | None) -> Iterator[str]:
    """The keys inside a section or key: the name there, the default, and the meaning, or as much of it as lines may have."""
    rows = [
        (name.removeprefix(f"{around}."), key.default or "–", key.meaning)
        for name, key in chosen.items()
        if name.startswith(f"{around}.")
    ]
    if rows:
        names, defaults = (max(len(row[i]) for row in rows) for i in (0, 1))
        yield ""
        for name, default, meaning in rows:
            head = f"  {name:<{names}}  {default:<{defaults}}  "
            indent = " " * len(head)
            yield from wrap(head + meaning, width, subsequent_indent=indent, max_lines=lines_max, placeholder=" …")


def _plain(lines: Iterable[str]) -> list[str]:
    """The lines without the backticks of the reference page, and without an empty line in front."""
    plain = [line.replace("`", "") for line in lines]
    return plain[1:] if plain[0] == "" else plain
