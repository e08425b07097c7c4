"""Reports on conversations: how many tokens are trained, their lengths, and samples with marked trained tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tokenmill.checks.file_checks import DocumentsFile
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.report.conversation_samples import samples_of_files
from tokenmill.report.table_frame import scan_table


def conversations_of(
    manifest: Manifest, described: Mapping[str, Any] | None, tables: Path, files: Sequence[DocumentsFile]
) -> dict[str, Any] | None:
    """The report's entry of a dataset of conversations; None for texts. `described`: what `tokenmill info` says of them. `files`:
    those of the dataset, checked."""
    chat = manifest.chat
    if chat is None or described is None:
        return None
    rows = scan_table(tables / DOCUMENTS_FILE).with_columns(conversations=pl.lit(1, pl.Int64))
    messages = rows.group_by(messages="n_messages").agg(pl.sum("conversations")).sort("messages")
    untrained = rows.filter(n_trained=0).select(pl.sum("conversations"))
    by_messages, without_trained = pl.collect_all([messages, untrained], engine="streaming")
    return {
        **{key: described[key] for key in ("template", "mask", "tokens_trained", "trained_share")},
        "without_trained": without_trained.item(),
        **({} if chat.turns != "each" else _of_samples(manifest, chat.n_repeated)),
        **({} if chat.answers is None else chat.answers._asdict()),
        "cut": {split: of["n_cut_answers"] for split, of in manifest.packed.items() if "n_cut_answers" in of},
        "messages": by_messages.to_dicts(),
        "samples": samples_of_files(files, chat.turns == "pair"),
    }


def _of_samples(manifest: Manifest, n_repeated: int | None) -> dict[str, Any]:
    """What the report says only of `turns: each`."""
    return {
        "turns": "each",
        "conversations": sum(rows.n_documents for shard in manifest.shards for rows in shard.rows),
        "samples_made": manifest.n_documents,
        "tokens_repeated": n_repeated,
    }
