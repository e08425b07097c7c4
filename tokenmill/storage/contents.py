"""Tells what the first bytes of a file plainly are, whatever its name says."""

import codecs
import re
from typing import NamedTuple

from tokenmill.storage.pointers import POINTER_BYTES_MAX, words_of_pointer

HEAD_BYTES = POINTER_BYTES_MAX + 1
"""So many bytes of the begin of a file tell what it is: one more than a pointer has."""


class Content(NamedTuple):
    """What a file is. `name`: a word for programs. `what`: the words of a message, behind "is". `fix`: what to do with the file
    where another kind is expected; empty where that depends on the reader."""

    name: str
    what: str
    fix: str = ""

    @property
    def is_pointer(self) -> bool:
        """Whether it stands for a file that is not downloaded."""
        return self.name == "pointer"

    @property
    def is_text(self) -> bool:
        """Whether it is text in UTF-8: plain text, JSON, or a page of HTML or XML."""
        return self.name in ("text", "html", "xml")


_DECOMPRESS = "Decompress it: `{} -dc FILE > NEW_FILE`."
"""With -c, as without it these programs refuse a name with another suffix."""
_EXPORT = "Export its rows to a file of the kind that is expected."
_AGAIN = "Copy or make it again."

# The marks are those of the formats' definitions. Where one is made of letters, the bytes behind it are no text.
_MARKS: dict[str, tuple[bytes, str, str]] = {
    "gzip": (rb"\x1f\x8b\x08", "a gzip file", _DECOMPRESS.format("gzip")),
    "zstd": (rb"\x28\xb5\x2f\xfd", "a zstd file", _DECOMPRESS.format("zstd")),
    "bz2": (rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)", "a bzip2 file", _DECOMPRESS.format("bzip2")),
    "xz": (rb"\xfd7zXZ\x00", "an xz file", _DECOMPRESS.format("xz")),
    "lz4": (rb"\x04\x22\x4d\x18", "an lz4 file", _DECOMPRESS.format("lz4")),
    "zip": (
        rb"PK(?:\x03\x04|\x05\x06)",
        "a zip archive, which files like .xlsx and .docx are, too",
        "Unpack or export it.",
    ),
    "7z": (rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07", "a 7z or rar archive", "Unpack it."),
    "parquet": (rb"PAR[1E]", "a Parquet file", ""),
    "arrow": (rb"ARROW1\x00\x00|\xff\xff\xff\xff[^\xff]...[\x08-\x20]\x00\x00\x00", "an Arrow file", ""),
    "feather": (rb"FEA1", "a Feather file of version 1", _EXPORT),
    "orc": (rb"ORC", "an ORC file", _EXPORT),
    "avro": (rb"Obj\x01", "an Avro file", _EXPORT),
    "sqlite": (rb"SQLite format 3\x00", "a database of SQLite", _EXPORT),
    "office": (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an older file of Office, such as .xls", _EXPORT),
    "hdf5": (rb"\x89HDF\r\n\x1a\n", "an HDF5 file", _EXPORT),
    "numpy": (rb"\x93NUMPY", "an array of numpy", _EXPORT),
    "gguf": (rb"GGUF", "a GGUF file", ""),
    "pdf": (rb"%PDF-\d", "a PDF", "Extract its text, for instance by `pdftotext`."),
    "image": (
        rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP|II\*\x00|MM\x00\*",
        "an image",
        "Take it away, or narrow what names it.",
    ),
    "utf-32": (rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff", "text in UTF-32", "Convert it: `iconv -f UTF-32 -t UTF-8`."),
    "utf-16": (rb"\xff\xfe|\xfe\xff", "text in UTF-16", "Convert it: `iconv -f UTF-16 -t UTF-8`."),
    "html": (
        rb"(?:\xef\xbb\xbf)?\s*<(?i:!doctype\s+html|html[\s>])",
        "a page of HTML, as servers send it with an error or a login",
        "Download the file again.",
    ),
    "xml": (
        rb"(?:\xef\xbb\xbf)?\s*<\?xml\s",
        "a document of XML, as object storage sends it with an error",
        "Download the file again.",
    ),
}
_OF_LETTERS = ("parquet", "feather", "orc", "gguf", "image")
_BEGIN = re.compile(b"|".join(b"(?P<x%d>%s)" % (i, mark) for i, (mark, _, _) in enumerate(_MARKS.values())), re.DOTALL)
_CONTENTS = [Content(name, what, fix) for name, (_, what, fix) in _MARKS.items()]
_TAR = Content("tar", "a tar archive", "Unpack it (`tar -xf`).")
_ZEROS = Content("zeros", "filled with zeros, as after a write that did not end", _AGAIN)
_UTF_16 = {
    "LE": Content("utf-16", "text in UTF-16", "Convert it: `iconv -f UTF-16LE -t UTF-8`."),
    "BE": Content("utf-16", "text in UTF-16", "Convert it: `iconv -f UTF-16BE -t UTF-8`."),
}
_TEXT = Content("text", "plain text")
_CONTROL = bytes({*range(32), 0x7F} - {*b"\t\n\v\f\r\x1b"})
_MARK_BYTES = slice(257, 262)
_UTF_16_BYTES_MIN = 8
_TEXT_BYTES_MIN = 10
"""Fewer bytes may be the begin of a mark that was cut off."""


def content_of(head: bytes) -> Content | None:
    """What a file is that begins with these bytes, its first HEAD_BYTES or all that it has; None if they do not tell.

    >>> content_of(b"\\x1f\\x8b\\x08\\x00\\x00").fix, content_of(b"ORC is an acronym.").what
    ('Decompress it: `gzip -dc FILE > NEW_FILE`.', 'plain text')
    """
    head = head[:HEAD_BYTES]
    if not head:
        return None
    if words := words_of_pointer(head):
        return Content("pointer", *words)
    is_text = _is_text(head)
    if (begin := _BEGIN.match(head)) is not None:
        assert begin.lastgroup is not None
        found = _CONTENTS[int(begin.lastgroup[1:])]
        if not (is_text and found.name in _OF_LETTERS):
            return found
    if is_text:
        return _TEXT if len(head) >= _TEXT_BYTES_MIN else None
    if not head.strip(b"\0"):
        return _ZEROS
    if head[_MARK_BYTES] == b"ustar":
        return _TAR
    return _utf_16(head)


def is_binary(head: bytes) -> bool:
    """Whether a file with these first bytes plainly is no text of any encoding. One that begins as JSON may just have bad lines.

    >>> is_binary(b"MZ\\x90\\x00\\x03\\x00"), is_binary(b"caf\\xe9 cr\\xe8me"), is_binary(b"a\\x00b")
    (True, False, False)
    """
    try:
        codecs.utf_8_decode(head)  # leaves out a character that is cut off
    except UnicodeDecodeError:
        return len(head.translate(None, _CONTROL)) < len(head) and not head.lstrip().startswith((b"{", b"["))
    return False


def _is_text(head: bytes) -> bool:
    """Whether the bytes are UTF-8, whose last character may be cut off, without control characters that no text has."""
    if len(head.translate(None, _CONTROL)) < len(head):  # three times as fast as a regex
        return False
    try:
        codecs.utf_8_decode(head)  # leaves out a character that is cut off
    except UnicodeDecodeError:
        return False
    return True


def _utf_16(head: bytes) -> Content | None:
    """UTF-16 without a byte order mark: of most of its pairs of bytes, always the same one is zero."""
    n_pairs = len(head) // 2
    n_zeros = [head[i : 2 * n_pairs : 2].count(0) for i in range(2)]
    if 2 * n_pairs < _UTF_16_BYTES_MIN or min(n_zeros) or max(n_zeros) * 3 < n_pairs * 2:
        return None
    return _UTF_16["LE" if n_zeros[1] else "BE"]
