"""Reads a tokenizer.json with the `tokenizers` library in a separate process, before it is read in this one.

The library takes lengths from the file: it may end its process without an exception, or take memory without a bound. A normalizer
of 90 bytes reserves 8.6 GB, and 2 MB of long tokens take 0.7 GB (tokenizers 0.23).
"""

import hashlib
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from tokenmill.child_limits import how_ended, limit_memory
from tokenmill.errors import TokenizerError
from tokenmill.storage.writable import user_caches
from tokenmill_reader.child_python import command_of

_SECONDS_MAX = 60
"""The limit on CPU time."""
_MEMORY_BYTES_MAX = 2_000_000_000

_MARKS = Path("tokenmill/read-by-tokenizers")
"""In the user's folder for caches: an empty file for each tokenizer.json that was read well, named by its sha256, below the
library's version. Reading a Unigram model of 250,000 tokens takes 1.9 s."""

_read: set[str] = set()
"""The sha256 of each that this process read."""


def check(content: bytes, place: str) -> None:
    """Raises TokenizerError if the library ends its process, or goes beyond the limits on time and memory. What it says of a file
    itself is no error here."""
    digest = hashlib.sha256(content).hexdigest()
    mark = _mark(digest)
    if digest in _read or (mark is not None and mark.exists()):
        return
    command, null = command_of("tokenmill.tokenizer.library_trial"), subprocess.DEVNULL
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True) as process:
        try:
            process.communicate(content)
        finally:
            process.kill()
    if process.returncode:
        raise TokenizerError(
            place,
            f"the tokenizers library cannot read it within {_SECONDS_MAX} s and {_MEMORY_BYTES_MAX / 1e9:g} GB of memory: its "
            f"process ended with {how_ended(process.returncode)}.",
            "Look for lengths in the file that are wrong, such as in precompiled_charsmap, and for very long tokens.",
        )
    _read.add(digest)
    if mark is not None:
        with suppress(OSError):
            mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.touch(0o600)


def _mark(digest: str) -> Path | None:
    caches = user_caches()
    return None if caches is None else caches / _MARKS / version("tokenizers") / digest


def main() -> None:
    """Reads the file on standard input."""
    content = sys.stdin.buffer.read()
    limit_memory(_MEMORY_BYTES_MAX)
    signal.setitimer(signal.ITIMER_PROF, _SECONDS_MAX)  # its signal ends the process
    from tokenizers import Tokenizer

    with suppress(BaseException):  # of foreign code; a panic of Rust is no Exception
        Tokenizer.from_str(content.decode())


if __name__ == "__main__":
    main()
