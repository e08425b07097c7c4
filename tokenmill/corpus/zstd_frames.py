"""Says how large the window of a zstd frame is (RFC 8878, section 3.1.1.1)."""

from shlex import quote

from tokenmill.errors import CorpusError

HEADER_BYTES_MAX = 18

_MAGIC = b"\x28\xb5\x2f\xfd"
_DEFAULT_LOG = 27  # zstd's own limit on a window, 128 MiB, unless --long is given
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_BYTES = (0, 2, 4, 8)


def window_bytes(header: bytes) -> int | None:
    """The window of the frame that these bytes begin; None if no frame begins so."""
    if not header.startswith(_MAGIC) or len(header) < 6:
        return None
    descriptor = header[4]
    if descriptor >> 5 & 1:  # a single segment: its window is its content
        start = 5 + _DICTIONARY_BYTES[descriptor & 3]
        n_bytes = max(_CONTENT_BYTES[descriptor >> 6], 1)
        return int.from_bytes(header[start : start + n_bytes], "little") + (256 if n_bytes == 2 else 0)
    base = 1 << (10 + (header[5] >> 3))
    return base + base // 8 * (header[5] & 7)


def window_error(name: str, header: bytes) -> CorpusError:
    """The error for a file with a window beyond zstd's own limit. `header`: the file's first HEADER_BYTES_MAX bytes."""
    n_bytes = window_bytes(header) or 0
    log = (n_bytes - 1).bit_length()
    if log <= _DEFAULT_LOG:  # of a later frame
        log = 31
    is_of_first = n_bytes > 1 << _DEFAULT_LOG
    found = f"is {n_bytes / 1e6:,.0f} MB" if is_of_first else "of one of its frames is larger"
    return CorpusError(
        f"{name}: its zstd window {found}; tokenmill reads windows up to {(1 << _DEFAULT_LOG) / 1e6:,.0f} MB. The file is not "
        f"damaged. Make the window smaller: `zstd -dc --long={log} {quote(name)} | zstd --long={_DEFAULT_LOG} -o NEW.zst`.",
        code="TM206",
    )
