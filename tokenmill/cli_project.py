"""The commands that have to do with a project as a whole: init, doctor."""

import argparse
import shlex
from pathlib import Path
from typing import Any


def add_commands(commands: Any) -> None:
    """Adds the commands to the parser's."""
    init = commands.add_parser(
        "init",
        help="make a new data project",
        description="Makes a folder a data project under git and DVC: in the git repository that it is in, or in a new one. "
        "Overwrites nothing.",
        epilog="example: tokenmill init my-tokens",
    )
    init.add_argument("directory", type=Path, metavar="DIR", help="the folder; it may be there already")
    init.set_defaults(run=_init)


def _init(asked: argparse.Namespace) -> None:
    from tokenmill.init import make_project
    from tokenmill.layout import RAW_DIRECTORY

    made = make_project(asked.directory)
    here = asked.directory.resolve() == Path.cwd()
    print(f"{asked.directory}: a project, with {', '.join(sorted(made))}. Next:")
    steps = [] if here else [f"cd {shlex.quote(str(asked.directory))}"]
    steps += [f"cp FILES {RAW_DIRECTORY}            # or sample documents: python -m tokenmill.sample {RAW_DIRECTORY}"]
    steps += ["tokenmill build", 'git add . && git commit -m "First build"']
    print("\n".join(f"  {step}" for step in steps))
    if not (asked.directory / ".git").exists():
        print(
            "The project is inside a git repository: it builds there, and cannot publish, which works from the root of one."
        )
