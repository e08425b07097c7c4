"""Decompresses files of documents."""

import bz2
import lzma
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import zstandard

from tokenmill.corpus.zstd_frames import HEADER_BYTES_MAX, large_window
from tokenmill.errors import CorpusError

_BY_PYARROW = {".gz": "gzip", ".zst": "zstd"}
_READ_BYTES = 1 << 16
_ZSTD_PIECE_BYTES = 1 << 8  # given to zstd at once: 4 bytes of a bomb become 128 KiB


def decompressed(file: pa.NativeFile, compression: str, memory_bytes_max: int | None, name: str) -> Any:
    """A reader of the decompressed bytes. `compression`: the suffix that names it; "": gives the file itself. `memory_bytes_max`:
    the limit of a zstd window or xz dictionary; None: no limit. `name`: the file's, for error messages.

    Raises CorpusError for a window that is too large. Reading raises OSError without errno for damaged data, and CorpusError for a
    dictionary that is too large.
    """
    match compression:
        case "":
            return file
        case ".bz2":
            return _Streams(file, bz2.BZ2Decompressor, name)
        case ".xz":
            return _Streams(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memory_bytes_max), name)
        case ".zst" if (log := _large_window(file, memory_bytes_max, name)) is not None:
            return _Zstd(file, log)
        case _:
            return pa.CompressedInputStream(file, _BY_PYARROW[compression])


def _large_window(file: pa.NativeFile, memory_bytes_max: int | None, name: str) -> int | None:
    header = file.read(HEADER_BYTES_MAX)
    file.seek(0)
    return large_window(name, header, memory_bytes_max)


class _Zstd:
    """Reads the concatenated zstd frames of a file. No window may exceed 2 ** `window_log_max` bytes."""

    def __init__(self, file: pa.NativeFile, window_log_max: int) -> None:
        self._file = file
        self._decoder = zstandard.ZstdDecompressor(max_window_size=1 << window_log_max)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._given = self._found = memoryview(b"")

    def read(self, n_bytes: int) -> bytes:
        """The next bytes, up to `n_bytes`; none at the end."""
        while not self._found:
            self._given = self._given or memoryview(self._file.read(_READ_BYTES))
            if not self._given:
                if self._frame is not None:
                    raise OSError("the compressed stream is truncated")
                break
            self._frame = self._frame or self._decoder.decompressobj()
            piece = self._given[:_ZSTD_PIECE_BYTES]
            try:
                self._found = memoryview(self._frame.decompress(piece))
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from None
            self._given = self._given[len(piece) - len(self._frame.unused_data) :]
            if self._frame.eof:
                self._frame = None
        found, self._found = self._found[:n_bytes], self._found[n_bytes:]
        return bytes(found)


class _Streams:
    """Reads the concatenated compressed streams of a file."""

    def __init__(self, file: pa.NativeFile, new: Callable[[], Any], name: str) -> None:
        self._file, self._new, self._name = file, new, name
        self._decoder: Any = None
        self._left = b""  # compressed bytes after the end of a stream

    def read(self, n_bytes: int) -> bytes:
        """The next bytes, up to `n_bytes`; none at the end."""
        while True:
            if self._decoder is None or self._decoder.eof:
                self._left = (self._left or self._file.read(_READ_BYTES)).lstrip(b"\0")  # xz allows padding with zeros
                if not self._left:
                    if self._file.tell() == self._file.size():
                        return b""
                    continue
                self._decoder, given, self._left = self._new(), self._left, b""
            elif self._decoder.needs_input:
                given = self._file.read(_READ_BYTES)
                if not given:
                    raise OSError("the compressed stream is truncated")
            else:
                given = b""
            try:
                found: bytes = self._decoder.decompress(given, n_bytes)
            except lzma.LZMAError as error:
                if "limit" in str(error):
                    raise CorpusError(
                        self._name,
                        "run.memory_mb_max leaves too little for its xz dictionary.",
                        "Raise it, lower run.workers, or compress the file with a smaller one, such as that of `xz "
                        "-6`.",
                        code="TM206",
                    ) from None
                raise OSError(str(error)) from None
            except ValueError as error:  # of bz2, for truncated data
                raise OSError(str(error)) from None
            if self._decoder.eof:
                self._left = self._decoder.unused_data
            if found:
                return found
