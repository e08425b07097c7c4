"""Whether new documents still are what the tokenizer was made for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tokenmill.cards import Card
from tokenmill.manifest import Manifest, OutputShard
from tokenmill.params import Refresh
from tokenmill.scripts import characters_by_script


@dataclass(frozen=True)
class Drift:
    """New documents beside the card's corpus. `new_scripts`: of their characters, the share of each script it did not have."""

    n_shards: int
    n_documents: int
    bytes_per_token: float
    bytes_per_token_card: float
    new_scripts: dict[str, float]

    @property
    def change(self) -> float:
        """How far bytes per token are from the card's: -0.1 is 10 % fewer, so more tokens for the same text."""
        return self.bytes_per_token / self.bytes_per_token_card - 1

    def past(self, limits: Refresh) -> list[str]:
        """What is past its limit, in words."""
        found = []
        if abs(self.change) > limits.drift_max:
            found.append(
                f"bytes per token: {self.bytes_per_token:.4f}, the tokenizer's card has {self.bytes_per_token_card:.4f} "
                f"({self.change:+.1%}; refresh.drift_max is {limits.drift_max:.1%})"
            )
        if sum(self.new_scripts.values()) > limits.new_scripts_max:
            scripts = ", ".join(f"{script} {share:.1%}" for script, share in self.new_scripts.items())
            found.append(
                f"scripts that the tokenizer's corpus did not have: {scripts} of the characters "
                f"(refresh.new_scripts_max is {limits.new_scripts_max:.1%})"
            )
        return found


def new_shards(manifest: Manifest, before: Manifest | None) -> list[OutputShard]:
    """The shards whose content the manifest before does not have."""
    known = set() if before is None else {shard.source.sha256 for shard in before.shards}
    return [shard for shard in manifest.shards if shard.source.sha256 not in known]


def measure(card: Card, manifest: Manifest, shards: Sequence[OutputShard], texts: Iterable[pa.Array]) -> Drift | None:
    """The drift of shards; bytes per token of all of them, scripts of `texts` from them.

    None where there is nothing to measure: no document, or a tokenizer whose card does not know its corpus.
    """
    n_documents = sum(shard.n_documents for shard in shards)
    text_bytes = sum(shard.text_bytes for shard in shards)
    ends = 0 if manifest.end_of_document_id is None else n_documents
    n_tokens = sum(shard.n_tokens for shard in shards) - ends
    if card.training is None or not n_tokens or not card.training.bytes_per_token:
        return None
    characters: dict[str, int] = {}
    for one in texts:
        for script, n in characters_by_script(one).items():
            characters[script] = characters.get(script, 0) + n
    total = max(sum(characters.values()), 1)
    return Drift(
        n_shards=len(shards),
        n_documents=n_documents,
        bytes_per_token=text_bytes / n_tokens,
        bytes_per_token_card=card.training.bytes_per_token,
        new_scripts={script: n / total for script, n in characters.items() if script not in card.training.scripts},
    )
