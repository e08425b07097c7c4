"""Draws conversations of a dataset for the report, with what of their answers is trained."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, get_args

import numpy as np

from tokenmill.checks.chat_checks import samples_in
from tokenmill.checks.file_checks import FileCheck
from tokenmill.config.chat_params import AnswerPart
from tokenmill.corpus.good_documents import GoodDocuments
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.checked_parquet import parquet_file

SEED = 0
N_SAMPLES = 10

ROWS_MAX = 2000
"""Samples come from the first rows of each file, because the documents of a file are read up to there."""

SHOWN_TOKENS_MAX = 1000
"""The length limit of a conversation in the report, or of one side of a pair."""

OTHER = "other"
"""The part of trained tokens of which the template does not tell what of an answer they are."""


def samples_of_files(files: Sequence[FileCheck], is_pair: bool) -> list[dict[str, Any]]:
    """Up to N_SAMPLES conversations of checked files, drawn with SEED, in the order of the dataset.

    Ids and masks are those of the dataset's files. Each of `sides` has the text as runs of [text, part]: the part of an answer that
    the run is trained as, OTHER, or None where it is not trained. A pair has two sides, other conversations one.
    """
    n_rows = [min(file.entry.n_documents, ROWS_MAX) for file in files]
    drawn = sorted(random.Random(SEED).sample(range(sum(n_rows)), min(N_SAMPLES, sum(n_rows))))
    samples: list[dict[str, Any]] = []
    first = 0
    for file, n in zip(files, n_rows, strict=True):
        rows = [row - first for row in drawn if first <= row < first + n]
        first += n
        if rows:
            samples += _of_file(file, rows, is_pair)
    return samples


def _of_file(file: FileCheck, rows: Sequence[int], is_pair: bool) -> Iterator[dict[str, Any]]:
    tokenizer, chat = file.judge.tokenizer, file.judge.chat
    assert chat is not None
    for row, conversation, (id, ids, mask) in zip(rows, _conversations(file, rows), _tokens(file, rows), strict=True):
        parts = chat.answer_parts(conversation)
        yield {
            "id": id,
            "file": file.entry.name,
            "row": row,
            "tokens": len(ids),
            "trained": int(mask.sum()),
            "sides": [
                {
                    "name": name,
                    "tokens": end - start,
                    "runs": _runs(
                        tokenizer, *(one[start:end][:SHOWN_TOKENS_MAX].tolist() for one in (ids, mask, parts))
                    ),
                }
                for name, start, end in _sides(mask, is_pair)
            ],
        }


def _conversations(file: FileCheck, rows: Sequence[int]) -> list[bytes]:
    """The canonical JSON, in UTF-8, of the conversations, or samples of them, that are these rows of a file."""
    assert file.unit is not None and file.judge.chat is not None
    damaged = file.unit.without({i: "" for i, of in enumerate(file.entry.rows) if of.n_bad is None})
    rules = file.rules
    documents = GoodDocuments(damaged, rules.source, rules.limits, lambda _bytes, _tokens: None, rules.filters)
    conversations: list[bytes] = []
    n_before = 0
    with closing(iter(documents)) as batches:  # type: ignore[type-var]
        for batch in samples_in(batches, [of.name for of in file.entry.rows], file.judge.chat):
            assert batch.messages is not None
            conversations += (
                batch.messages[row - n_before].as_buffer().to_pybytes()
                for row in rows
                if n_before <= row < n_before + len(batch.messages)
            )
            n_before += len(batch.messages)
            if len(conversations) == len(rows):
                break
    return conversations


def _tokens(file: FileCheck, rows: Sequence[int]) -> Iterator[tuple[Any, Any, Any]]:
    """The name of each of these rows of a file, and its ids and mask as arrays."""
    first = 0
    with parquet_file(file.tokens) as opened:
        for group in range(opened.num_row_groups):
            n_rows = opened.metadata.row_group(group).num_rows
            if chosen := [row - first for row in rows if first <= row < first + n_rows]:
                table = opened.read_row_group(group, columns=["id", "input_ids", "loss_mask"])
                for i in chosen:
                    yield (
                        table["id"][i].as_py(),
                        *(table[name][i].values.to_numpy() for name in ("input_ids", "loss_mask")),
                    )
            first += n_rows


def _sides(mask: Any, is_pair: bool) -> list[tuple[str | None, int, int]]:
    """The name, start and end of each side. Both sides of a pair begin with the same prompt. A pair of equal answers, of which
    nothing is trained, is shown whole.

    >>> _sides([0, 1, 1, 0, 0, 1, 0], True)
    [('chosen', 0, 4), ('rejected', 4, 7)]
    """
    if not is_pair or not np.any(mask):
        return [(None, 0, len(mask))]
    prompt, _, second, _ = np.flatnonzero(np.diff(mask, prepend=0, append=0)).tolist()
    return [("chosen", 0, second - prompt), ("rejected", second - prompt, len(mask))]


def _runs(tokenizer: Tokenizer, ids: list[int], mask: list[int], parts: list[int]) -> list[list[Any]]:
    """The text of tokens, in runs of one part. `parts`: see `ChatEncoder.answer_parts`."""
    names = (OTHER, *get_args(AnswerPart))
    shown = [names[part] if is_trained else None for is_trained, part in zip(mask, parts, strict=True)]
    return [
        [tokenizer.decode_bytes([id for id, _ in run]).decode(errors="replace"), part]
        for part, run in groupby(zip(ids, shown, strict=True), key=lambda one: one[1])
    ]
