"""Provenance of a table of counts: the shards that were counted, how they were read, and the beginnings of some documents.

It lies beside the counts, so that whoever learns from them needs the documents no more.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tokenmill.config.params import Source
from tokenmill.corpus.limits import UNBOUNDED, Limits
from tokenmill.corpus.quarantine import good_batches
from tokenmill.corpus.shards import Shard
from tokenmill.errors import CountsError
from tokenmill.storage.atomic import read, write_atomic

_N_SAMPLES = 32  # texts, from as many shards at most
_SAMPLE_CHARACTERS_MAX = 400  # of each: a published tokenizer carries them, and must not carry whole documents around
_SEED = b"tokenmill golden vectors 1"


class CountedShard(msgspec.Struct, frozen=True):
    """A shard of the corpus that was counted."""

    name: str
    n_bytes: int
    sha256: str


class Provenance(msgspec.Struct, frozen=True):
    """What a table of counts was made from. `samples`: see `sample_texts`."""

    text_column: str
    id_column: str | None
    text_separator: str | None
    shards: list[CountedShard]
    samples: dict[str, str]


def provenance_of(shards: Mapping[Shard, str], source: Source, limits: Limits) -> Provenance:
    """The provenance of counts of these shards, which come with the sha256 of each. Raises CorpusError."""
    counted = [CountedShard(shard.name, shard.n_bytes, sha256) for shard, sha256 in shards.items()]
    samples = sample_texts(list(shards), source, limits)
    return Provenance(source.text_column, source.id_column, source.text_separator, counted, samples)


def sample_texts(shards: Sequence[Shard], source: Source, limits: Limits = UNBOUNDED) -> dict[str, str]:
    """Beginnings of documents of the corpus by shard and row, drawn by a fixed seed: the same shards give the same.

    Shards are drawn by the hash of their names, a document from the beginning of each. Raises CorpusError.
    """
    drawn = sorted(shards, key=lambda shard: _hash(shard.name))[:_N_SAMPLES]
    texts = {}
    for shard in sorted(drawn, key=lambda shard: shard.name):
        batch = next((one for one in good_batches(shard, source, limits) if len(one.texts)), None)
        if batch is not None:
            i = int(_hash(f"{shard.name} row"), 16) % len(batch.texts)
            texts[f"corpus/{shard.name}/{batch.rows()[i]}"] = batch.texts[i].as_py()[:_SAMPLE_CHARACTERS_MAX]
    return texts


def write_provenance(provenance: Provenance, path: Path) -> None:
    """Writes it as JSON; the same gives the same bytes."""
    with write_atomic(path) as partial:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(provenance), indent=1) + b"\n")


def read_provenance(path: Path) -> Provenance:
    """What `write_provenance` wrote. Raises CountsError when it is missing or malformed."""
    try:
        return msgspec.json.decode(read(path), type=Provenance)
    except FileNotFoundError:
        raise CountsError(
            f"{path}: missing; an older tokenmill counted, or nothing was counted for a tokenizer that is taken. Run "
            "`tokenmill build --only count`."
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CountsError(f"{path}: {error}. Delete the file and run `tokenmill build`.") from None


def _hash(text: str) -> str:
    return hashlib.sha256(_SEED + text.encode()).hexdigest()
