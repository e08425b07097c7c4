"""Drift: whether new documents still resemble the corpus that the tokenizer was trained on."""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.artifacts.model_card import Card
from tokenmill.config.publish_params import Refresh
from tokenmill.corpus.scripts import characters_by_script
from tokenmill.dataset.entries import OutputShard
from tokenmill.dataset.manifest import Manifest
from tokenmill.formats.parquet import read_tokens


@dataclass(frozen=True)
class Drift:
    """New documents beside the corpus of the tokenizer's card. `n_documents`: good documents. `text_bytes`: the bytes in their
    text. `n_bad`: documents in the quarantine, where a damaged shard counts as one. `new_scripts`: the share in their characters of
    each script that the corpus did not have. Figures are None or empty if the card does not describe a corpus, or if there are no
    tokens."""

    n_shards: int
    n_documents: int
    text_bytes: int
    n_bad: int
    bytes_per_token: float | None
    bytes_per_token_card: float | None
    new_scripts: dict[str, float]

    @property
    def change(self) -> float:
        """The relative change of bytes per token from the card's figure. -0.1 means 10 % fewer, so more tokens for the same text.
        0 if one of the figures is unknown."""
        one, card = self.bytes_per_token, self.bytes_per_token_card
        return one / card - 1 if one and card else 0.0

    @property
    def quarantine_share(self) -> float:
        """The share of the documents that is in the quarantine."""
        return self.n_bad / max(self.n_bad + self.n_documents, 1)

    def past(self, limits: Refresh) -> list[str]:
        """A sentence for each limit that is exceeded. Text and scripts are judged from `limits.drift_bytes_min` on."""
        sentences = []
        is_enough = self.text_bytes >= limits.drift_bytes_min
        if is_enough and abs(self.change) > limits.drift_max:
            sentences.append(
                f"bytes per token: {self.bytes_per_token:.4f}, the tokenizer's card has {self.bytes_per_token_card:.4f} "
                f"({self.change:+.1%}; refresh.drift_max is {limits.drift_max:.1%})"
            )
        if is_enough and sum(self.new_scripts.values()) > limits.new_scripts_max:
            scripts = ", ".join(f"{script} {share:.1%}" for script, share in self.new_scripts.items())
            sentences.append(
                f"scripts that the tokenizer's corpus did not have: {scripts} of the characters "
                f"(refresh.new_scripts_max is {limits.new_scripts_max:.1%})"
            )
        if self.quarantine_share > limits.quarantine_max:
            sentences.append(
                f"in the quarantine: {self.n_bad:,} of {self.n_bad + self.n_documents:,} documents "
                f"({self.quarantine_share:.1%}; refresh.quarantine_max is {limits.quarantine_max:.1%})"
            )
        return sentences

    def note(self, limits: Refresh) -> str | None:
        """A sentence that says that there is too little new text to judge; None if there is enough, or no new document."""
        if not self.n_documents or self.text_bytes >= limits.drift_bytes_min:
            return None
        return (
            f"drift of the new text is not judged: {self.text_bytes:,} bytes; refresh.drift_bytes_min is "
            f"{limits.drift_bytes_min:,}"
        )


def new_shards(manifest: Manifest, before: Manifest | None) -> set[str]:
    """The names of the input shards whose content is not in the earlier manifest."""
    known = set() if before is None else {shard.sha256 for shard in before.inputs}
    return {shard.name for shard in manifest.inputs if shard.sha256 not in known}


def measure(card: Card, tokens: Path, manifest: Manifest, added: Set[str], texts: Iterable[pa.Array]) -> Drift:
    """The drift of the input shards `added`. Bytes per token come from all their documents, scripts from the sample `texts`.

    `tokens`: the dataset's folder. Raises ValidationError for a dataset file that cannot be read.
    """
    sums = [_sums(tokens, shard, added) for shard in manifest.shards]
    n_documents, n_tokens, text_bytes = (sum(some) for some in zip(*sums, strict=True)) if sums else (0, 0, 0)
    around = (manifest.begin_of_document_id, manifest.end_of_document_id)
    n_tokens -= sum(id is not None for id in around) * n_documents
    n_bad = sum(
        1 if rows.n_bad is None else rows.n_bad
        for shard in manifest.shards
        for rows in shard.rows
        if rows.name in added
    )
    if card.training is None:
        return Drift(len(added), n_documents, text_bytes, n_bad, None, None, {})
    characters: dict[str, int] = {}
    for text in texts:
        for script, n in characters_by_script(text).items():
            characters[script] = characters.get(script, 0) + n
    total = max(sum(characters.values()), 1)
    return Drift(
        n_shards=len(added),
        n_documents=n_documents,
        text_bytes=text_bytes,
        n_bad=n_bad,
        bytes_per_token=text_bytes / n_tokens if n_tokens else None,
        bytes_per_token_card=card.training.bytes_per_token,
        new_scripts={script: n / total for script, n in characters.items() if script not in card.training.scripts},
    )


def _sums(tokens: Path, file: OutputShard, added: Set[str]) -> tuple[int, int, int]:
    """Documents, tokens and text bytes of the `added` shards in a dataset file. Only a file that mixes in others is read."""
    are_new = [rows.name in added for rows in file.rows]
    if not any(are_new):
        return 0, 0, 0
    if all(are_new):
        return file.n_documents, file.n_tokens, file.text_bytes
    is_new = pa.array([new for new, rows in zip(are_new, file.rows, strict=True) for _ in range(rows.n_rows)])
    n_documents = n_tokens = text_bytes = first = 0
    for batch in read_tokens(tokens / file.name):
        new_rows = batch.filter(is_new.slice(first, batch.num_rows))
        first += batch.num_rows
        n_documents += new_rows.num_rows
        n_tokens += pc.sum(pc.list_value_length(new_rows["input_ids"])).as_py() or 0
        text_bytes += pc.sum(new_rows["n_bytes"]).as_py() or 0
    return n_documents, n_tokens, text_bytes
