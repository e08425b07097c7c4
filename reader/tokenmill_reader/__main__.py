"""The commands `python -m tokenmill_reader check DIR` and `python -m tokenmill_reader info DIR`.

Exit codes: 0, all is right; 1, a file of the dataset is missing or wrong; 2, an error, with one line on standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tokenmill_reader.copy_check import check
from tokenmill_reader.description import info, lines_of
from tokenmill_reader.errors import EXIT_DONE, EXIT_ERROR, EXIT_NO, TokenmillError
from tokenmill_reader.shown import as_shown, size


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. `arguments`: None for those of the process."""
    options = _parser().parse_args(arguments)
    try:
        return _info(options.directory, options.json) if options.command == "info" else _check(options.directory)
    except TokenmillError as error:
        print(as_shown(error.lines), file=sys.stderr)
    except OSError as error:
        print(as_shown(f"{error.filename or options.directory}: {error.strerror or error}."), file=sys.stderr)
    return EXIT_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tokenmill_reader", description="Looks at a copy of a token dataset."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="compare the name, size and sha256 of every file with the manifest")
    telling = commands.add_parser("info", help="say what the manifest says: documents, tokens, formats, splits")
    telling.add_argument("--json", action="store_true", help="as JSON")
    for one in (checking, telling):
        one.add_argument("directory", help="the dataset's folder, which has a manifest.json")
    return parser


def _check(directory: str) -> int:
    checked = check(directory)
    if checked.wrong:
        print(as_shown([*checked.wrong, f"{directory}: {len(checked.wrong):,} wrong. Copy the dataset again."]))
        return EXIT_NO
    print(as_shown(f"{directory}: {checked.n_files:,} files, {size(checked.n_bytes)}, as the manifest says."))
    return EXIT_DONE


def _info(directory: str, as_json: bool) -> int:
    found = info(directory)
    print(json.dumps(found, indent=1) if as_json else as_shown(lines_of(found)))
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
