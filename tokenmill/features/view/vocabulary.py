"""The tokens of a tokenizer as the page shows them: texts in which nothing is hidden, and bytes in hex."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill.errors import TokenizerError
from tokenmill.features.view.locate import reading
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.array_types import Ids
from tokenmill_reader.checked_parquet import read_table
from tokenmill_reader.shown import as_shown


class Vocabulary:
    """The bytes of each token by id, the special ids, and how often each id occurs; what is not known is empty.

    `tokenizer`: None if the dataset has none beside it. `counted`: the path of its tokens_per_id.parquet, if it is there. `digest`:
    the tokenizer's, which that table must name, too."""

    def __init__(self, tokenizer: Tokenizer | None, counted: Path | None = None, digest: str = "") -> None:
        self.tokenizer = tokenizer
        self.bytes: Mapping[int, bytes] = {} if tokenizer is None else tokenizer.tokens
        self.counts: dict[int, int] = {}
        self._special = set() if tokenizer is None else set(tokenizer.special_tokens.values())
        if counted is not None:
            with reading(counted):
                table = read_table(counted, partitioning=None)
                if (table.schema.metadata or {}).get(b"tokenizer_digest") != digest.encode():
                    return
                ids, raws, counts = (table[name].to_pylist() for name in ("id", "bytes", "count"))
            self.counts = dict(zip(ids, counts, strict=True))
            self.bytes = self.bytes or dict(zip(ids, raws, strict=True))

    def tokens(self, ids: list[int]) -> dict[str, Any]:
        """`ids`, and in `tokens`, once for each of them: what is shown, with a line break behind each newline, its bytes in hex
        (null if they are not known), and whether it is special."""
        entries = {}
        for id in dict.fromkeys(ids):
            raw = self.bytes.get(id)
            entries[id] = [self.shown(id, r"\n" + "\n"), None if raw is None else raw.hex(), id in self._special]
        return {"ids": ids, "tokens": entries}

    def shown(self, id: int, newline: str = r"\n") -> str:
        """The text of a token, with escapes for what cannot be shown; its id if its bytes are not known."""
        raw = self.bytes.get(id)
        return str(id) if raw is None else newline.join(map(bytes_as_shown, raw.split(b"\n")))

    def text(self, ids: Ids) -> str | None:
        """The text of ids with its lines, and escapes for what cannot be shown; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        try:
            return as_shown(self.tokenizer.decode(pa.array(ids)).split("\n"))
        except TokenizerError as error:  # an id of a damaged file
            return as_shown(error.lines)


def bytes_as_shown(raw: bytes) -> str:
    r"""Bytes as text in one line, with escapes for what cannot be shown.

    >>> print(bytes_as_shown(b"caf\xc3\n"))
    caf\xc3\n
    """
    return as_shown(raw.decode(errors="backslashreplace"))
