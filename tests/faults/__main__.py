"""Builds under faults of the machine: `python -m tests.faults [MODE …] [--short] [--kills N] [--seed N]`.

Prints a table: what each mode has tried, and what came of it. Exit code 0: nothing went wrong.
"""

import argparse
import sys
import time
from functools import partial

from tests.faults import builds, calls, disk, inputs, kills, shim
from tests.faults.table import Row, as_text, tell


def main() -> int:
    """The command line; 1 when something was wrong or hung, 2 when a compiler is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__.splitlines()[0] if __doc__ else None
    )
    modes = {
        "kills": kills.kills,
        "kills-at-calls": kills.kills_at_calls,
        "signals": kills.signals,
        "errors": calls.errors,
        "order": calls.order,
        "disk-full": disk.disk_full,
        "at-once": kills.at_once,
        "inputs": inputs.changing,
        "bombs": inputs.bombs,
        "surroundings": inputs.surroundings,
    }
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"some of {', '.join(modes)} (default: all)")
    parser.add_argument("--short", action="store_true", help="a few tries of each")
    parser.add_argument("--kills", type=int, default=1000, help="at random moments")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if unknown := set(asked.modes) - modes.keys():
        parser.error(f"{', '.join(unknown)}: no mode; there are {', '.join(modes)}")
    if missing := shim.missing():
        tell(missing)
        return 2
    if not shim.is_there():
        return shim.run_with_shim("tests.faults", sys.argv[1:])
    modes["kills"] = partial(kills.kills, n=asked.kills)
    builds.load_modules()
    rows = []
    with builds.temporary_folder() as folder:
        known = builds.Scenarios(folder)
        for name in asked.modes or modes:
            rows.append(_timed(partial(modes[name], known, asked.short, asked.seed)))
    print(as_text(rows), flush=True)
    return 1 if any(row.failed for row in rows) else 0


def _timed(mode: partial[Row]) -> Row:
    start_s = time.monotonic()
    row = mode()
    row.seconds = time.monotonic() - start_s
    tell(as_text([row]).splitlines()[1])
    return row


if __name__ == "__main__":
    sys.exit(main())
