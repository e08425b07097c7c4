"""The parser of the command line, with common options, help in groups, and suggestions for mistyped names."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from tokenmill.errors import EXIT_CODES, UsageError, did_you_mean

GROUPS = {
    "build": ("init", "choose", "plan", "build", "pin"),
    "inspect": ("status", "info", "view", "locate", "verify", "check", "conform", "diff", "doctor"),
    "share": ("publish", "fetch", "convert", "draft-vocab", "remap", "upload", "download", "gc"),
    "schedule": ("refresh", "serve"),
    "help": ("explain", "params", "completion"),
}
"""The commands by group, in the order of the help. Commands of other packages follow in a group of their own."""

_OUTPUT = {
    ("--json",): "print one JSON object, also for an error",
    ("-q", "--quiet"): "print only errors and the requested result; no progress, notes or reports",
    ("-v", "--verbose"): "also print a line for each work unit, and why it is done",
    ("--debug",): "print tracebacks of errors, and the logs of Prefect and DVC",
}


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError instead of ending the process."""

    def __init__(self, **named: Any) -> None:
        super().__init__(allow_abbrev=False, **named)
        self.commands: dict[str, Parser] = {}
        self._options: list[str] = []
        output = self.add_argument_group("output")
        # The program and each command have these. Without SUPPRESS, the default of one would overwrite the other.
        for names, words in _OUTPUT.items():
            output.add_argument(*names, action="store_true", default=argparse.SUPPRESS, help=words)
            self._options += names

    def add_argument(self, *names: Any, **named: Any) -> argparse.Action:
        """Adds an argument like argparse, and remembers options for suggestions."""
        action = super().add_argument(*names, **named)
        if hasattr(self, "_options"):  # argparse adds --help before it exists
            self._options += action.option_strings
        return action

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parses like argparse. Raises UsageError, with the nearest name for a mistyped command or option."""
        given = list(args or ())
        command = command_of(given)
        if command is not None and command not in self.commands:
            hint = did_you_mean(command, self.commands) or " `tokenmill --help` lists the commands."
            raise UsageError(f"there is no command {command!r}.{hint}", self.format_usage())
        options, unknown = self.parse_known_args(given, namespace)
        of = self if command is None else self.commands[command]
        if unknown:
            hint = did_you_mean(unknown[0].partition("=")[0], of._options) if unknown[0].startswith("-") else ""
            of.error(f"unrecognized arguments: {' '.join(unknown)}.{hint}")
        if command is None:
            raise UsageError("no command given.", self.format_help())
        if getattr(options, "quiet", False) and getattr(options, "verbose", False):
            of.error("--quiet and --verbose exclude each other.")
        return options

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        name = self.prog.removeprefix("tokenmill").strip()
        end = "" if message.endswith((".", "?")) else "."
        raise UsageError(f"{name + ': ' if name else ''}{message}{end}", self.format_usage())

    def format_help(self) -> str:
        """Formats help like argparse, but the whole program's help shows the commands in groups."""
        if not self.commands:
            return super().format_help()
        width = max(map(len, self.commands))
        lines = ["usage: tokenmill COMMAND [options]", "", self.description or ""]
        groups = dict(GROUPS)
        in_a_group = {name for names in GROUPS.values() for name in names}
        if others := tuple(name for name in self.commands if name not in in_a_group):
            groups["of other packages"] = others
        for group, names in groups.items():
            lines += ["", f"{group}:"]
            lines += [f"  {name:<{width}}  {self.commands[name].summary}" for name in names]
            if example := self.commands[names[0]].epilog:
                lines.append(f"  {example}")
        lines += ["", "options of every command, before or after it:"]
        shown = {", ".join(names): words for names, words in _OUTPUT.items()}
        shown |= {"-h, --help": "print the help of a command", "--version": "print the version"}
        lines += [f"  {names:<13}  {words}" for names, words in shown.items()]
        lines += [
            "",
            "exit codes:",
            *(f"  {code:<3}  {meaning}" for code, meaning in EXIT_CODES.items()),
            "",
            "`tokenmill COMMAND --help` shows the options of a command.",
        ]
        return "\n".join(lines) + "\n"

    summary: str = ""


class Commands:
    """The subparsers of a parser, with the same `add_parser` as in argparse."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self._subparsers: Any = parser.add_subparsers(dest="command", metavar="COMMAND")

    def add_parser(self, name: str, **named: Any) -> Parser:
        """Adds a command. `help`: its line in the help. `epilog`: its example."""
        made: Parser = self._subparsers.add_parser(name, **named)
        made.summary = named["help"]
        self.parser.commands[name] = made
        return made


def command_of(given: Sequence[str]) -> str | None:
    """The first argument that is not an option, which is the command, because no option before a command has a value."""
    return next((one for one in given if not one.startswith("-")), None)
