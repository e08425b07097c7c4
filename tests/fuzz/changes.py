"""Random changes to bytes, to numbers in files, and to values of JSON, and random chat templates."""

import io
import os
import re
import struct
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_TESTS

from tokenmill_reader.thrift import read_struct

_TEXTS = ["", "\x00", "..", "../x", "/", "\x1b", "a" * 300, "é", "\ufffe", "(", "[a-z]+", "<s>", "type", "inf", "-1"]
_NUMBERS = [-1, 0, 1, 2, 255, 2**16, 2**31, 2**32, 2**63, 2**64, 10**30, -(2**63), 0.5, 1e308, float("nan")]
_VALUES = [None, True, [], {}, [[]], [None], {"a": 1}, "\ud800", *_TEXTS, *_NUMBERS]
_LENGTHS = [struct.pack("<I", n) for n in (0, 1, 2**30, 2**31 - 1, 2**31, 2**32 - 1)]
_LENGTHS += [struct.pack("<Q", n) for n in (0, 2**31, 2**32, 2**33, 2**40, 2**62, 2**63, 2**64 - 1)]
ODD_NAMES = [os.fsdecode(b"\xff"), "\x1b]0;x\x07", "a\nFORGED", "\u2028", "\u202ea"]
"""Names of files that are no UTF-8, command a terminal or forge a line."""
_PIECES = [b"\n", b'"', b"\\", b"{", b"]", b"\\ud800", b"1e999", b"\xef\xbb\xbf", b"[" * 3000, b"0" * 5000]
_GRAMMAR = {  # the expansions of each symbol; a branch ends with the first one
    symbol: text.split("; ")
    for symbol, text in {
        "T": "{{ message.content }}; {{ @E }}; {% set x = @E %}; {% set x %}a@T{% endset %}; <s>@T@T; "
        "{%- if @E -%}@T{% else %}b{% break %}{% endif %}; {% generation %}@T{% endgeneration %}; "
        "{% for x in (messages) %}@T{% endfor %}; {% for message in messages %}{{ message.content }}@T@T{% endfor %}; "
        "{% macro m(x) %}@T{% endmacro %}{{ m(@E) }}; {% filter @F %}@T{% endfilter %}",
        "E": "@A; (@E @O @E); @E|@F; @E|@F(@E); @E.@M; @E[@E]; @E[@E:@E]; (@E if @E else @E); (@E is @S); [@E, @E]; {@E: @E}",
        "A": "messages; messages[0]; message['role']; messages[-1].content; message; tools; bos_token; loop.index0; loop.last; "
        "m; x; ns; none; true; ''; 'ab'; 0; -1; 2; 1.5; []; {}; (); range(3); namespace(); dict()",
        "M": "strip(); split('a'); upper(); items(); get('role'); append(x); format(x); __class__; replace('a','b'); zfill(9)",
        "O": "+; -; *; /; //; %; **; ~; ==; <; in; and; or",
        "F": "; ".join(sorted(DEFAULT_FILTERS)),
        "S": "; ".join(sorted(filter(str.isidentifier, DEFAULT_TESTS))),
    }.items()
}


def changed_bytes(chance: Random, content: bytes) -> bytes:
    """The content with some pieces of it replaced."""
    found = bytearray(content)
    for _ in range(chance.choice([1, 1, 1, 2, 4, 16])):
        at, n = chance.randrange(len(found) + 1), chance.choice([1, 1, 2, 4, 8, 64, len(found) // 3])
        there, other = bytes(found[at : at + n]), chance.randrange(len(found) + 1)
        if chance.random() < 0.2:  # a number, which begins where numbers are put, often in place of a length
            number, places = chance.choice(_LENGTHS), _places_of_lengths(found) if chance.random() < 0.5 else []
            start = chance.choice(places) if places else at - at % 4
            found[start : start + len(number)] = number
            continue
        new = [chance.randbytes(n), b"", b"\x00" * n, b"\xff" * n, there * 2, there[::-1], found[other : other + n]]
        found[at : at + n] = chance.choice([*new, chance.choice(_PIECES)])
    return bytes(found)


def _places_of_lengths(content: bytes | bytearray) -> list[int]:
    """Where 8 bytes are a number from 1 to four times the length of the content, as most lengths in files are."""
    words = [np.frombuffer(content[start:], "<u8", (len(content) - start) // 8) for start in (0, 4)]
    return [
        8 * i + 4 * k for k in (0, 1) for i in np.flatnonzero((words[k] > 0) & (words[k] <= 4 * len(content))).tolist()
    ]


def put_link(chance: Random, folder: Path, outside: Path) -> None:
    """Puts a link to a file outside of the folder in place of the file with this name."""
    target = chance.choice(sorted(path for path in outside.rglob("*") if path.is_file()))
    path = folder / target.relative_to(outside)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


class _Noted(io.BytesIO):
    """Bytes that note where one of them was read alone, as Thrift's numbers and types are."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.noted: list[int] = []

    def read(self, n_bytes: int | None = -1, /) -> bytes:
        if n_bytes == 1:
            self.noted.append(self.tell())
        return super().read(n_bytes)


def parquet_numbers(content: bytes) -> list[tuple[int, int, int]]:
    """The numbers and types in the footer and in the page headers of a Parquet file: where each begins, where it ends, and where
    the footer or the page ends."""
    end = len(content) - 8
    structs = [(end - int.from_bytes(content[end : end + 4], "little"), end)]
    metadata = pq.read_metadata(io.BytesIO(content))
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            start = column.dictionary_page_offset or column.data_page_offset
            structs.append((start, start + column.total_compressed_size))
    found = []
    for start, stop in structs:
        file = _Noted(content)
        file.seek(start)
        read_struct(file)
        ends = [at + 1 for at in file.noted if content[at] < 128]  # larger ones go on in the next byte
        found += [(ends[i - 1] if i else start, ends[i], stop) for i in range(len(ends))]
    return found


def with_number(content: bytes, place: tuple[int, int, int], number: int) -> bytes:
    """A Parquet file with another number at a place of `parquet_numbers`. A footer has its new length, and a page its own."""
    start, end, stop = place
    varint = bytearray()
    while number > 127:
        varint.append(number & 127 | 128)
        number >>= 7
    changed = bytes([*varint, number]) + content[end:stop]
    if stop < len(content) - 8:
        return content[:start] + changed[: stop - start].ljust(stop - start, b"\0") + content[stop:]
    n_footer = int.from_bytes(content[stop : stop + 4], "little") + len(changed) - (stop - start)
    return content[:start] + changed + n_footer.to_bytes(4, "little") + content[stop + 4 :]


def change_json(chance: Random, value: Any, more: Sequence[Any] = ()) -> None:
    """Changes some values in an object or a list. `more`: further values that may be put there."""
    if chance.random() < 0.2:
        _change_two(chance, value)
    for _ in range(chance.choice([0, 1, 1, 1, 2, 4])):
        inside = value
        while inside:
            keys, others = (
                (list(inside), list(inside.values())) if isinstance(inside, dict) else (range(len(inside)), inside)
            )
            key = chance.choice(keys)
            if isinstance(inside[key], dict | list) and inside[key] and chance.random() < 0.8:
                inside = inside[key]
                continue
            kind = chance.random()
            if kind < 0.15:
                del inside[key]
            elif kind < 0.3 and isinstance(inside, dict):
                inside[chance.choice(_TEXTS)] = inside.pop(key)
            elif kind < 0.6 and isinstance(inside[key], int):
                inside[key] += chance.choice([-1, 1, 2**16])
            else:
                inside[key] = deepcopy(chance.choice([*_VALUES, *others[:20], *more]))
            break


def _change_two(chance: Random, value: Any) -> None:
    """Changes two numbers of one object or list by the same amount: what follows from both still fits."""
    waiting, found = [value], []
    while waiting:
        inside = waiting.pop()
        parts = [*(inside.items() if isinstance(inside, dict) else enumerate(inside))]
        waiting += [part for _, part in parts if isinstance(part, dict | list)]
        numbers = [key for key, part in parts if type(part) is int]
        if len(numbers) > 1:
            found.append((inside, numbers))
    if found:
        inside, numbers = chance.choice(found)
        more = chance.choice([-1, 1, 255, 2**16, 2**25, 2**31, 2**62])
        for key in chance.sample(numbers, 2):
            inside[key] += more


def template(chance: Random, symbol: str = "T", depth: int = 4) -> str:
    """A random chat template, often one that can be rendered."""
    line = chance.choice(_GRAMMAR[symbol]) if depth > 0 or symbol not in "TE" else _GRAMMAR[symbol][0]
    depth -= 2 if symbol == "E" else 1
    return re.sub("@([A-Z])", lambda found: template(chance, found[1], depth), line)
