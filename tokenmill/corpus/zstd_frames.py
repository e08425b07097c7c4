"""Reads the window size of a zstd frame (RFC 8878, section 3.1.1.1), and refuses windows that exceed the memory."""

from shlex import quote

from tokenmill.errors import CorpusError

HEADER_BYTES_MAX = 18
PLAIN_LOG_MAX = 27
"""Windows of up to 2 ** 27 bytes are what zstd, and pyarrow, read without being told to."""
LOG_MAX = 31

_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_BYTES = (0, 2, 4, 8)


def window_bytes(header: bytes) -> int | None:
    """The window in bytes of the frame that begins here; None if these bytes begin no frame."""
    if not header.startswith(_MAGIC) or len(header) < 6:
        return None
    descriptor = header[4]
    if descriptor >> 5 & 1:  # a single segment: its window is its content
        start = 5 + _DICTIONARY_BYTES[descriptor & 3]
        n_bytes = max(_CONTENT_BYTES[descriptor >> 6], 1)
        return int.from_bytes(header[start : start + n_bytes], "little") + (256 if n_bytes == 2 else 0)
    base = 1 << (10 + (header[5] >> 3))
    return base + base // 8 * (header[5] & 7)


def large_window(name: str, header: bytes, memory_bytes_max: int | None) -> int | None:
    """The logarithm of the largest window to allow, for a file whose first frame has a larger one than pyarrow reads; else None.
    `header`: the file's first HEADER_BYTES_MAX bytes. Raises CorpusError if that frame's window is larger than `memory_bytes_max`;
    None: no limit."""
    n_bytes = window_bytes(header) or 0
    if n_bytes <= 1 << PLAIN_LOG_MAX:
        return None
    log = (n_bytes - 1).bit_length()
    if memory_bytes_max is None:
        return LOG_MAX
    if n_bytes > memory_bytes_max:
        raise CorpusError(
            name,
            f"its zstd window is {n_bytes / 1000000.0:,.0f} MB; run.memory_mb_max leaves "
            f"{memory_bytes_max / 1000000.0:,.0f} MB to a worker for it. The file is not damaged.",
            f"Raise run.memory_mb_max, lower run.workers, or make the window smaller: {_again(name, log)}.",
            code="TM206",
        )
    return min(max(log, memory_bytes_max.bit_length() - 1), LOG_MAX)


def later_window(name: str) -> CorpusError:
    """The error for a later frame with a larger window than the first."""
    return CorpusError(
        name,
        "one of its zstd frames has a larger window than the first. The file is not damaged.",
        f"Make it one frame: {_again(name, LOG_MAX)}.",
        code="TM206",
    )


def _again(name: str, log: int) -> str:
    return f"`zstd -dc --long={log} {quote(name)} | zstd --long={PLAIN_LOG_MAX} -o NEW.zst`"
