"""The core's reader of JSON lines agrees with msgspec, and leaves lines that it does not know to it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill import _core
from tokenmill.config.sources import Column, Reading
from tokenmill.corpus.jsonl import line_reader
from tokenmill.corpus.shards import Shard

SHARD = Shard(Path("a.jsonl"), "a.jsonl", 0)
TEXTS = st.text(st.sampled_from('aé東🙂"\\/\b\n\r\t\x00\x1f\x7f\u2028\ufeff\ufffd'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(['"id"', '"text"', '"Text"', r'"te\u0078t"', '"more"', '""', r'"i\nd"'])
LINE = (
    '{"id": 7, "more": [1.5e-3, -0, "\\ud83d\\ude42", {"a": null, "b": [true, false]}], '
    '"te\\u0078t": "\\b\\f\\n\\r\\t\\"\\/\\\\é🙂\\u0000"}'
).encode()


def columns(found: Any) -> Any:
    texts, beside, n_line_ends = found[:3]
    for array in (texts, *beside):
        array.validate(full=True)
    return texts.to_pylist(), [values.to_pylist() for values in beside], n_line_ends


def read_both(lines: bytes, *names: str) -> tuple[Any, Any]:
    """What the core makes of lines, and what msgspec does; bad lines are their numbers."""
    bad: list[int | None] = []
    fast = _core.json_lines(lines, "text", names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenmill.corpus.jsonl._core.json_lines", lambda *_: None)
        reading = Reading("text", columns=tuple(Column(name, "count.by") for name in names))
        slow = columns(line_reader(SHARD, reading, lambda one: bad.append(one.line))(lines, 1))
    return fast and columns(fast), bad or slow


@pytest.mark.slow
@given(st.lists(st.lists(st.tuples(KEYS, VALUES | TEXTS), max_size=4), max_size=3), st.booleans(), st.data())
@example([[('"text"', "a"), ('"text"', "b"), ('"id"', 2**63)]], True, None)
@settings(max_examples=400)
def test_what_the_core_reads_is_what_msgspec_reads(
    rows: list[list[tuple[str, Any]]], is_ascii: bool, data: st.DataObject | None
) -> None:
    lines = b""
    for row in rows:
        pairs = (f"{key}: {json.dumps(value, ensure_ascii=is_ascii)}" for key, value in row)
        lines += ("{" + ", ".join(pairs) + "}").encode() + b"\n"
    if data and data.draw(st.booleans(), "damaged"):
        at = data.draw(st.integers(0, len(lines)))
        lines = lines[:at] + data.draw(st.binary(max_size=2)) + lines[at + data.draw(st.integers(0, 3)) :]
    for names in ((), ("id",), ("more", "id")):
        fast, slow = read_both(lines, *names)
        assert fast is None or fast == slow


def one_byte_off() -> Iterator[bytes]:
    for at in range(len(LINE)):
        yield LINE[:at]
        yield LINE[:at] + LINE[at + 1 :]
        for byte in b'\x00\x0b\x1f \n,:0-.eEuU"\\/{}[]\x7f\x80\xc0\xed\xf4\xff':
            yield LINE[:at] + bytes([byte]) + LINE[at:]
            yield LINE[:at] + bytes([byte]) + LINE[at + 1 :]


def test_lines_one_byte_from_a_good_one_are_read_as_by_msgspec() -> None:
    n_taken = 0
    for lines in one_byte_off():
        fast, slow = read_both(lines, "id")
        assert fast is None or fast == slow, lines
        n_taken += fast is not None
    assert n_taken > 500


@pytest.mark.parametrize("byte", range(256))
def test_bytes_and_escapes_of_each_kind_are_read_as_by_msgspec(byte: int) -> None:
    for text in (
        b"%c",
        b"\\%c",
        b"\\u00%c0",
        b"\\ud83d\\u%c",
        b"\\ud83d\\ude4%c",
        b"\\%c0041",
        b"\xc3%c",
        b"\xf0\x9f\x99%c",
    ):
        for line in (
            b'{"text": "' + text + b'"}',
            b'{"' + text + b'": 0, "text": ""}',
            b'{"more": "' + text + b'", "text": ""}',
        ):
            fast, slow = read_both(line % byte)
            assert fast is None or fast == slow, line % byte


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n \t\x0b\x0c\r\n"])
def test_good_lines_are_read_by_the_core(end: bytes) -> None:
    lines = b"\n".join([LINE] * 3) + end
    fast, slow = read_both(lines, "id")
    assert fast == slow == (['\b\f\n\r\t"/\\é🙂\0'] * 3, [["7"] * 3], lines.count(b"\n"))
    assert columns(_core.json_lines(lines, "te\u0078t", []))[1] == []


def test_a_key_that_is_no_ascii_is_found() -> None:
    assert columns(_core.json_lines('{"テキスト": "a"}\n{"\\u30c6キスト": "b"}'.encode(), "テキスト", []))[0] == [
        "a",
        "b",
    ]
