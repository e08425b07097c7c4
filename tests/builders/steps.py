"""Runs steps one after another in one process, since each process of their own would spend a second on imports.

`python steps.py JSON`: a step is a folder, a program and its arguments. Ends with the code of the first step that fails.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import tokenmill
from tokenmill.cli.main import main
from tokenmill.features.view.answering import Answering
from tokenmill.terminal import prepare_streams


def run(program: str, *arguments: str) -> int:
    """The exit code of one step."""
    match program:
        case "tokenmill":
            return main(arguments)
        case "dvc":
            from dvc.cli import main as dvc_main

            return int(dvc_main([*arguments, "--quiet"]))
        case "view":
            shown = Answering(Path(arguments[0]))
            try:
                status, _answer = shown.ask("info", {})
            finally:
                shown.close()
            return int(status != 200)
        case "read":
            dataset, *cache = arguments
            n_tokens = sum(len(ids) for ids in tokenmill.open(dataset, cache=cache[0] if cache else None))
            return int(n_tokens == 0)
    return subprocess.run([program, *arguments], check=False).returncode


if __name__ == "__main__":
    prepare_streams()
    for folder, *step in json.loads(sys.argv[1]):
        os.chdir(folder)
        if code := run(*step):
            print(step, "ended with", code, file=sys.stderr)
            sys.exit(code)
