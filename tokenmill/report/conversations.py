"""Reports on conversations: how many tokens are trained, their lengths, and samples with marked trained tokens."""

import random
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.checked_parquet import parquet_file

SEED = 0
N_SAMPLES = 10

SHOWN_TOKENS_MAX = 1000
"""The length limit of a sample."""


def conversations_of(manifest: Manifest, tokens: Path, tables: Path, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """The report's entry of a dataset of conversations; None for texts.

    `samples`: up to N_SAMPLES conversations drawn with SEED, each as runs of text with 1 where the tokens are trained. They come
    from the ids and masks in the dataset's files, and not from the template.
    """
    chat = manifest.chat
    if chat is None:
        return None
    index = _of_index(tables / DOCUMENTS_FILE)
    return {
        "template": chat.template_name,
        "mask": chat.mask,
        "tokens_trained": chat.n_trained,
        "trained_share": chat.n_trained / max(manifest.n_tokens, 1),
        "without_trained": index.n_untrained,
        **({} if chat.turns != "each" else _of_samples(manifest, index)),
        **({} if chat.answers is None else chat.answers._asdict()),
        "cut": {split: of["n_cut_answers"] for split, of in manifest.packed.items() if "n_cut_answers" in of},
        "messages": [{"messages": n, "conversations": times} for n, times in sorted(index.n_messages.items())],
        "samples": _samples(manifest, tokens, tokenizer),
    }


class _Index(NamedTuple):
    """What the document index says: numbers of rows by their numbers of messages, the number of rows without a trained token, and
    the number of tokens in rows that another one of the same conversation follows."""

    n_messages: Counter[int]
    n_untrained: int
    n_repeated: int


def _of_index(path: Path) -> _Index:
    n_messages: Counter[int] = Counter()
    n_untrained = n_repeated = 0
    last: list[pa.RecordBatch] = []  # the row before
    with parquet_file(path) as file:
        for batch in file.iter_batches(columns=["shard", "row", "n_tokens", "n_trained", "n_messages"]):
            n_messages.update(batch["n_messages"].to_pylist())
            n_untrained += pc.sum(pc.equal(batch["n_trained"], 0)).as_py() or 0
            rows = pa.Table.from_batches([*last, batch])
            one, other = rows.slice(0, len(rows) - 1), rows.slice(1)
            is_followed = pc.and_(pc.equal(one["shard"], other["shard"]), pc.equal(one["row"], other["row"]))
            n_repeated += pc.sum(one["n_tokens"].filter(is_followed)).as_py() or 0
            last = [batch.slice(len(batch) - 1)]
    return _Index(n_messages, n_untrained, n_repeated)


def _of_samples(manifest: Manifest, index: _Index) -> dict[str, Any]:
    """What the report says only of `turns: each`. `tokens_repeated`: those of all samples but the last of each conversation, whose
    messages the last one has, too."""
    return {
        "turns": "each",
        "conversations": sum(rows.n_documents for shard in manifest.shards for rows in shard.rows),
        "samples_made": manifest.n_documents,
        "tokens_repeated": index.n_repeated,
    }


def _samples(manifest: Manifest, tokens: Path, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Conversations drawn from all files of the dataset, in their order."""
    n = manifest.n_documents
    drawn = sorted(random.Random(SEED).sample(range(n), min(N_SAMPLES, n)))
    found, first = [], 0
    for shard in manifest.shards:
        rows = [row - first for row in drawn if first <= row < first + shard.n_documents]
        first += shard.n_documents
        if rows:
            found += _of_file(tokens / shard.name, shard.name, rows, tokenizer)
    return found


def _of_file(path: Path, name: str, rows: list[int], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    found, first = [], 0
    with parquet_file(path) as file:
        for group in range(file.num_row_groups):
            n_rows = file.metadata.row_group(group).num_rows
            if chosen := [row - first for row in rows if first <= row < first + n_rows]:
                table = file.read_row_group(group, columns=["id", "input_ids", "loss_mask"])
                for i in chosen:
                    ids, mask = table["input_ids"][i].as_py(), table["loss_mask"][i].as_py()
                    found.append(
                        {
                            "id": table["id"][i].as_py(),
                            "file": name,
                            "row": first + i,
                            "tokens": len(ids),
                            "trained": sum(mask),
                            "runs": _runs(ids[:SHOWN_TOKENS_MAX], mask, tokenizer),
                        }
                    )
            first += n_rows
    return found


def _runs(ids: list[int], mask: list[int], tokenizer: Tokenizer) -> list[list[Any]]:
    """Splits the text of the tokens into runs that are trained (1) or not (0)."""
    pairs = groupby(zip(ids, mask, strict=False), key=lambda one: one[1])
    return [
        [tokenizer.decode_bytes([id for id, _ in run]).decode(errors="replace"), is_trained]
        for is_trained, run in pairs
    ]
