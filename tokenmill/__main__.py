"""The program: the command `tokenmill`, and python -m tokenmill."""

import gc
import os
import signal
import sys

from tokenmill.errors import EXIT_DONE, EXIT_ERROR, EXIT_INTERRUPTED, EXIT_UNREAD, code_of
from tokenmill.terminal import prepare_streams


def program() -> int:
    """Runs the command of this process; what comes back is the exit code, see `tokenmill.cli.main.main`."""
    # Arrow's own pool keeps what was freed: the build of 5 GB held 639 MB with it, and 530 in the same time without.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Workers of a build share the cores out; the library would begin a pool of threads for all cores, and warn at each fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Each search of all objects for garbage takes longer the more documents there are: in all, a seventh of a build of 40,000.
    gc.set_threshold(*gc.get_threshold()[:2], 100)
    prepare_streams()
    try:
        from tokenmill.cli.main import main

        code = main()
    except SystemExit as ended:  # of argparse: --help, --version
        code = int(ended.code or 0)
    except KeyboardInterrupt:  # while modules are imported; later main() itself says so
        print("tokenmill: interrupted.", file=sys.stderr)
        code = EXIT_INTERRUPTED
    gc.freeze()  # on exit, Python looks for garbage among all objects: 1 s after a build with Prefect, 0.3 s after an inline one
    for number in (signal.SIGINT, signal.SIGTERM):  # what still runs at the end, a signal ends without a traceback
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where Python writes what is left
        if isinstance(error, BrokenPipeError):
            return EXIT_UNREAD
        if code == EXIT_DONE:  # such as --help on a full disk
            print(f"tokenmill: error[{code_of(error)}]: standard output: {error.strerror}.", file=sys.stderr)
            code = EXIT_ERROR
    except ValueError:  # a closed stream, of which Python itself tells
        pass
    return code


if __name__ == "__main__":
    sys.exit(program())
