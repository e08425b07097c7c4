"""The program: the command `tokenmill`, and python -m tokenmill."""

import atexit
import gc
import os
import sys
from importlib.abc import MetaPathFinder

from tokenmill.errors import EXIT_UNREAD

_GARBAGE_EVERY = 200_000  # objects made between two looks for cycles; importing makes many and drops none


class _WithoutPandas(MetaPathFinder):
    """pyarrow imports pandas, where it is installed, when it gets its first list: 0.3 s and 40 MB that nothing here needs.

    None in sys.modules, which stops an import of Python, pyarrow would take for the module.
    """

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def program() -> int:
    """Runs the command of this process; what comes back is the exit code, see `tokenmill.cli.main.main`."""
    gc.set_threshold(_GARBAGE_EVERY)
    # Arrow's own pool keeps what was freed: the build of 5 GB held 639 MB with it, and 530 in the same time without.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.meta_path.insert(0, _WithoutPandas())
    code = 1

    @atexit.register
    def leave() -> None:
        """Comes last of all that is to be done at the end: to take apart half a million objects would take up to 0.6 s more."""
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # it was closed when the process began
                    stream.flush()
        except BrokenPipeError:
            os._exit(EXIT_UNREAD)
        except (OSError, ValueError):  # which Python itself tells
            return
        os._exit(code)

    try:
        from tokenmill.cli.main import main

        code = main()
    except SystemExit as ended:  # of argparse: --help, or what it does not know
        code = int(ended.code or 0)
        raise
    except KeyboardInterrupt:  # while modules are imported; later main() itself says so
        print("tokenmill: interrupted.", file=sys.stderr)
        code = 130
    finally:
        if server := sys.modules.get("tokenmill.orchestration.server"):
            server.leave_in_time(code)
    return code


if __name__ == "__main__":
    sys.exit(program())
