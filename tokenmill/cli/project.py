"""The commands init and doctor."""

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.cli.versions import find_params
from tokenmill.errors import EXIT_DONE, EXIT_NO, ParamsError

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    init = commands.add_parser(
        "init",
        help="make a new data project",
        description="Makes a data project of a folder, under git and DVC: in the git repository around it, or in a new one. "
        "Overwrites nothing.",
        epilog="example: tokenmill init my-tokens",
    )
    init.add_argument("directory", type=Path, metavar="DIR", help="the folder; it may exist already")
    init.add_argument(
        "--example",
        metavar="KIND",
        help="put small documents that come with tokenmill into it, and set the parameters that fit: english, code or chat",
    )
    init.set_defaults(run=_init)
    doctor = commands.add_parser(
        "doctor",
        help="check this machine and the project, and say how to correct what is wrong",
        description="Checks the machine and, inside a project, the project. Prints a line per check, with what to do. Exit "
        "code 0: nothing is wrong, at most warnings, with which a build still runs; 1: something is wrong.",
        epilog="example: tokenmill doctor --json",
    )
    doctor.set_defaults(run=_doctor)


def _init(options: argparse.Namespace) -> Answer:
    from tokenmill.layout import RAW_DIRECTORY
    from tokenmill.project.init import make_project

    files = sorted(make_project(options.directory, options.example))
    here = options.directory.resolve() == Path.cwd()
    lines = [f"{options.directory}: a project, with {', '.join(files)}. Next:"]
    steps = [] if here else [f"cd {shlex.quote(str(options.directory))}"]
    if options.example is None:
        steps += [
            f"cp FILES {RAW_DIRECTORY}            # or sample documents: python -m tokenmill.corpus.sample {RAW_DIRECTORY}"
        ]
    steps += ["tokenmill build", 'git add . && git commit -m "First build"']
    lines += [f"  {step}" for step in steps]
    is_root = (options.directory / ".git").exists()
    if not is_root:
        lines.append(
            "The project is in a subfolder of a git repository. It can build, but not publish: that needs the root of a repository."
        )
    result = {"directory": str(options.directory.absolute()), "files": files, "can_publish": is_root}
    return text(result, lines, is_asked_for=False)


def _doctor(_asked: argparse.Namespace) -> Answer:
    from tokenmill.project.doctor import examine, lines_of

    try:
        root = find_params().parent
    except ParamsError:
        root = None
    findings = examine(root)
    is_wrong = any(finding.state == "wrong" for finding in findings)
    result = {"is_wrong": is_wrong, "checks": [dataclasses.asdict(finding) for finding in findings]}
    return text(result, lines_of(findings), EXIT_NO if is_wrong else EXIT_DONE)
