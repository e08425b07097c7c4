"""Decompresses files of documents."""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import zstandard

from tokenmill.corpus.zstd_frames import HEADER_BYTES_MAX, large_window
from tokenmill.errors import CorpusError

_READ_BYTES = 1 << 16
_ZSTD_PIECE_BYTES = 1 << 8  # given to zstd at once: 4 bytes of a bomb become 128 KiB


def decompressed(file: pa.NativeFile, compression: str, memory_bytes_max: int | None, name: str) -> Any:
    """A reader of the decompressed bytes. `compression`: the suffix that names it; "": gives the file itself. `memory_bytes_max`:
    the limit of a zstd window or xz dictionary; None: no limit. `name`: the file's, for error messages.

    Raises CorpusError for a window that is too large, and OSError without errno for a file of 0 bytes: every compression has a
    header. Reading raises such an OSError for damaged data, and CorpusError for a dictionary that is too large.
    """
    if compression and not file.size():
        raise OSError(f"it has 0 bytes, and a {compression} file has a header even if it holds nothing")
    match compression:
        case "":
            return file
        case ".gz":
            return _Streams(file, _GzipMember, name)
        case ".bz2":
            return _Streams(file, bz2.BZ2Decompressor, name)
        case ".xz":
            return _Streams(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memory_bytes_max), name)
        case ".zst" if (log := _large_window(file, memory_bytes_max, name)) is not None:
            return _Zstd(file, log)
        case _:
            return pa.CompressedInputStream(file, "zstd")


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


class _GzipMember:
    """Decompresses a member of a gzip file, with the methods of a decompressor of bz2 or lzma. That of pyarrow is faster by a
    twentieth, but it takes the zeros with which tapes and disk images pad a file for a damaged member."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=zlib.MAX_WBITS + 16)  # with the header of gzip
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, given: bytes, n_bytes_max: int) -> bytes:
        """The next bytes, up to `n_bytes_max`."""
        found = self._member.decompress(self._member.unconsumed_tail + given, n_bytes_max)
        self.needs_input = len(found) < n_bytes_max and not self._member.unconsumed_tail
        return found


class _Streams:
    """Reads the concatenated compressed streams of a file. Zeros behind a stream are padding."""

    def __init__(self, file: pa.NativeFile, new: Callable[[], Any], name: str) -> None:
        self._file, self._new, self._name = file, new, name
        self._decoder: Any = None
        self._left = b""  # compressed bytes after the end of a stream
        self._n_before = -1  # streams in front of the one that is read

    def read(self, n_bytes: int) -> bytes:
        """The next bytes, up to `n_bytes`; none at the end."""
        while True:
            if self._decoder is None or self._decoder.eof:
                self._left = self._left or self._file.read(_READ_BYTES)
                if self._decoder is not None:
                    self._left = self._left.lstrip(b"\0")
                if not self._left:
                    if self._file.tell() == self._file.size():
                        return b""
                    continue
                self._decoder, given, self._left = self._new(), self._left, b""
                self._n_before += 1
            elif self._decoder.needs_input:
                given = self._file.read(_READ_BYTES)
                if not given:
                    raise OSError("the compressed stream is truncated")
            else:
                given = b""
            try:
                content: bytes = self._decoder.decompress(given, n_bytes)
            except lzma.LZMAError as error:
                if "limit" in str(error):
                    raise CorpusError(
                        self._name,
                        "run.memory_mb_max leaves too little for its xz dictionary.",
                        "Raise it, lower run.workers, or compress the file with a smaller one, such as that of `xz "
                        "-6`.",
                        code="TM206",
                    ) from None
                raise self._damaged(error) from None
            except (OSError, ValueError, zlib.error) as error:  # the first two are those of bz2
                raise self._damaged(error) from None
            if self._decoder.eof:
                self._left = self._decoder.unused_data
            if content:
                return content

    def _damaged(self, error: Exception) -> OSError:
        behind = f", behind the first {self._n_before:,} of its compressed streams" if self._n_before else ""
        return OSError(f"{error}{behind}")
