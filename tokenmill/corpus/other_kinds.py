"""Refuses files of documents that are of another kind than their name or source.format says."""

import os
import re
from codecs import BOM_UTF8
from typing import IO

from tokenmill.corpus.kinds import FileKind, kind_of
from tokenmill.corpus.shard_files import open_shard
from tokenmill.corpus.shards import Shard
from tokenmill.errors import DamagedError, PointerError
from tokenmill.storage.contents import HEAD_BYTES, Content, content_of, is_binary

_COMPRESSED = {"gzip": ".gz", "zstd": ".zst", "bz2": ".bz2", "xz": ".xz"}
_TABLES = {"parquet": ".parquet", "arrow": ".arrow"}
_JSON = {b"{": ".jsonl", b"[": ".json"}
_ROWS = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*"')
"""Begins JSON, and never the header of a .csv file."""
_OVER_LINES = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*[\r\n]\s*\{|\{[ \t]*\r?\n\s*")')
"""Begins an array, or an object, that is written over several lines."""


def refuse_other_bytes(shard: Shard, head: bytes) -> None:
    """Raises DamagedError, or PointerError, if a file with these first bytes plainly is of another kind than its name says. `head`:
    HEAD_BYTES of the file, or all that it has."""
    kind = shard.kind
    if (content := content_of(head)) is None:
        if not kind.compression:
            _refuse_binary(shard, head, "is")
        return
    refuse_pointer(shard, head)
    if not kind.compression:
        _refuse_other_json(shard, head, "is")
    if content.name == kind.format and not kind.compression:
        return
    if kind.compression:
        is_right, expected = _COMPRESSED.get(content.name) == kind.compression, f"a {kind.compression} file"
    else:
        is_right, expected = _may_be(content, kind), _expected(kind)
    if not is_right:
        what = f"is {content.what}{', not compressed' if kind.compression and content.is_text else ''}"
        raise DamagedError(shard.name, f"{what}; expected {expected}.", _fix(shard, head, content))


def refuse_pointer(shard: Shard, head: bytes) -> None:
    """Raises PointerError for a file with these first bytes that is a pointer to another one."""
    if (content := content_of(head)) is not None and content.is_pointer:
        raise PointerError(shard.name, f"is {content.what}.", content.fix)


def refuse_other_text(shard: Shard, head: bytes) -> None:
    """Raises DamagedError if the first decompressed bytes of a compressed file plainly are of another kind than its name says."""
    content = content_of(head)
    if content is None:
        _refuse_binary(shard, head, "what is compressed in it is")
    elif not content.is_pointer and not _may_be(content, shard.kind):
        fix = content.fix or "Copy or make it again."
        raise DamagedError(
            shard.name, f"what is compressed in it is {content.what}; expected {_expected(shard.kind)}.", fix
        )
    else:
        _refuse_other_json(shard, head, "what is compressed in it is")


def _refuse_binary(shard: Shard, head: bytes, words: str) -> None:
    """Raises DamagedError for a file of a text format with these first bytes that plainly are no text."""
    if shard.kind.format not in _TABLES and is_binary(head):
        what = f"{words} binary, as programs, sounds and pictures are; expected {_expected(shard.kind)}."
        raise DamagedError(shard.name, what, "Move it elsewhere, or copy or make it again.")


def _refuse_other_json(shard: Shard, head: bytes, words: str) -> None:
    """Raises DamagedError for JSON in the place of values with separators, or over several lines in the place of an object a line:
    each of its lines alone would be a bad one."""
    kind = shard.kind
    is_over_lines = _OVER_LINES.match(head) is not None
    if kind.format == "jsonl" and is_over_lines:
        what = f"{words} JSON over several lines; expected an object a line."
    elif kind.separator and _ROWS.match(head):
        what = f"{words} JSON; expected {_expected(kind)}."
    else:
        return
    suffix = ".json" if is_over_lines else _JSON[head.removeprefix(BOM_UTF8).lstrip()[:1]]
    stem = shard.name[: len(shard.name) - len(kind.compression)]
    raise DamagedError(shard.name, what, _read_as(shard, stem, suffix))


def refuse_other_file(shard: Shard) -> None:
    """Does what `refuse_other_bytes` does for a file that could not be read as its name says. Raises OSError."""
    with open_shard(shard) as file:
        refuse_other_bytes(shard, head_of(file))


def head_of(file: IO[bytes]) -> bytes:
    """The first bytes of an open file, which is at its beginning again afterwards."""
    file.seek(0, os.SEEK_SET)
    head = file.read(HEAD_BYTES)
    file.seek(0)
    return head


def may_be_text(head: bytes) -> bool:
    """Whether a file with these first bytes may be text. Bytes that tell nothing may become an error of UTF-8 later."""
    content = content_of(head)
    return not is_binary(head) if content is None else content.is_text


def _may_be(content: Content, kind: FileKind) -> bool:
    """Whether an uncompressed file with this content can be read as a file of this kind."""
    match kind.format:
        case "text":
            return content.is_text
        case "jsonl" | "json" | "csv" | "tsv":
            return content.name == "text"
        case _:
            return content.name == kind.format


def _expected(kind: FileKind) -> str:
    match kind.format:
        case "text":
            return "plain text"
        case "jsonl" | "json":
            return "JSON"
        case "csv" | "tsv":
            return f"values with {'commas' if kind.format == 'csv' else 'tabs'} between them"
        case _:
            return f"a .{kind.format} file"


def _fix(shard: Shard, head: bytes, content: Content) -> str:
    """How to make the file readable: another name, if it can be read then."""
    kind, name = shard.kind, shard.name
    stem = name[: len(name) - len(kind.compression)]
    new_suffix = _COMPRESSED.get(content.name)
    if new_suffix is not None and kind.format not in _TABLES:
        return f"Rename it to {stem}{new_suffix}."
    new_suffix = _TABLES.get(content.name)
    if content.name == "text" and not kind.compression:
        new_suffix = _JSON.get(head.removeprefix(BOM_UTF8).lstrip()[:1])
    if new_suffix is not None:
        return _read_as(shard, stem, new_suffix)
    if content.is_text and kind.compression and _may_be(content, kind):
        return f"Rename it to {stem}."
    return content.fix or "Copy or make it again."


def _read_as(shard: Shard, stem: str, suffix: str) -> str:
    """How to have the file read as one whose name ends so. `stem`: its name without the suffix of its compression."""
    if shard.source is not None and shard.source.format is not None:
        other = kind_of(f"a{suffix}")
        assert other is not None
        return f"Set {shard.source.section}.format: {other.format}, or name files of other formats in a source of their own."
    folder, slash, last = stem.rpartition("/")
    compression = shard.kind.compression if suffix not in _TABLES.values() else ""
    return f"Rename it to {folder}{slash}{last.rpartition('.')[0] or last}{suffix}{compression}."
