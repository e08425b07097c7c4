"""The commands that have to do with a project as a whole: init, doctor."""

import argparse
import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

from tokenmill.cli.versions import find_params
from tokenmill.errors import ParamsError

EXIT_WRONG = 1


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
    doctor = commands.add_parser(
        "doctor",
        help="check this machine and the project, and say how to mend what is wrong",
        description="Checks the machine and, inside a project, the project: a line each, with what to do. Exit code 0: nothing "
        "is wrong (warnings are things a build can do without), 1: something is.",
        epilog="example: tokenmill doctor --json",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON instead of text")
    doctor.set_defaults(run=_doctor)


def _init(asked: argparse.Namespace) -> None:
    from tokenmill.layout import RAW_DIRECTORY
    from tokenmill.project.init import make_project

    made = make_project(asked.directory)
    here = asked.directory.resolve() == Path.cwd()
    print(f"{asked.directory}: a project, with {', '.join(sorted(made))}. Next:")
    steps = [] if here else [f"cd {shlex.quote(str(asked.directory))}"]
    steps += [
        f"cp FILES {RAW_DIRECTORY}            # or sample documents: python -m tokenmill.corpus.sample {RAW_DIRECTORY}"
    ]
    steps += ["tokenmill build", 'git add . && git commit -m "First build"']
    print("\n".join(f"  {step}" for step in steps))
    if not (asked.directory / ".git").exists():
        print(
            "The project is inside a git repository: it builds there, and cannot publish, which works from the root of one."
        )


def _doctor(asked: argparse.Namespace) -> int:
    from tokenmill.project.doctor import as_text, examine

    try:
        root = find_params().parent
    except ParamsError:
        root = None
    findings = examine(root)
    print(json.dumps([dataclasses.asdict(one) for one in findings], indent=2) if asked.json else as_text(findings))
    return EXIT_WRONG if any(one.state == "wrong" for one in findings) else 0
