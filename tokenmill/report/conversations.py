"""Reports on conversations: how many tokens are trained, their lengths, and samples with marked trained tokens."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from tokenmill.checks.file_checks import FileCheck
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.report.conversation_samples import samples_of_files
from tokenmill_reader.checked_parquet import parquet_file


def conversations_of(
    manifest: Manifest, described: Mapping[str, Any] | None, tables: Path, files: Sequence[FileCheck]
) -> dict[str, Any] | None:
    """The report's entry of a dataset of conversations; None for texts. `described`: what `tokenmill info` says of them. `files`:
    those of the dataset, checked."""
    chat = manifest.chat
    if chat is None or described is None:
        return None
    index = _of_index(tables / DOCUMENTS_FILE)
    return {
        **{key: described[key] for key in ("template", "mask", "tokens_trained", "trained_share")},
        "without_trained": index.n_untrained,
        **({} if chat.turns != "each" else _of_samples(manifest, chat.n_repeated)),
        **({} if chat.answers is None else chat.answers._asdict()),
        "cut": {split: of["n_cut_answers"] for split, of in manifest.packed.items() if "n_cut_answers" in of},
        "messages": [{"messages": n, "conversations": times} for n, times in sorted(index.n_messages.items())],
        "samples": samples_of_files(files, chat.turns == "pair"),
    }


class _Index(NamedTuple):
    """What the document index says: the numbers of rows by their numbers of messages, and of rows without a trained token."""

    n_messages: Counter[int]
    n_untrained: int


def _of_index(path: Path) -> _Index:
    n_messages: Counter[int] = Counter()
    n_untrained = 0
    with parquet_file(path) as file:
        for batch in file.iter_batches(columns=["n_trained", "n_messages"]):
            n_messages.update(batch["n_messages"].to_pylist())
            n_untrained += pc.sum(pc.equal(batch["n_trained"], 0)).as_py() or 0
    return _Index(n_messages, n_untrained)


def _of_samples(manifest: Manifest, n_repeated: int | None) -> dict[str, Any]:
    """What the report says only of `turns: each`."""
    return {
        "turns": "each",
        "conversations": sum(rows.n_documents for shard in manifest.shards for rows in shard.rows),
        "samples_made": manifest.n_documents,
        "tokens_repeated": n_repeated,
    }
