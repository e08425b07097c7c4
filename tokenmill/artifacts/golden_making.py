"""Makes a tokenizer's golden vectors: the fixed panel, the hard cases and a sample of its own corpus."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenmill.artifacts.golden import Engine, Golden, Vector, first_difference, tiktoken_engine, tokenizers_engine
from tokenmill.artifacts.golden_texts import HARD, PANEL
from tokenmill.config.params import Source
from tokenmill.corpus.limits import UNBOUNDED, Limits
from tokenmill.corpus.quarantine import good_batches
from tokenmill.corpus.shards import Shard
from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.tokenizer import Tokenizer

_N_SAMPLES = 32  # texts from the tokenizer's own corpus, from as many shards at most
_SAMPLE_CHARACTERS_MAX = 400  # of each: a version must not carry whole documents around
_SEED = b"tokenmill golden vectors 1"


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


def make_golden(directory: Path, tokenizer: Tokenizer, samples: Mapping[str, str]) -> Golden:
    """The vectors of the tokenizer that was saved in `directory`, from the panel, the hard cases and `samples`.

    Raises TokenizerError when the tokenizers library gives other ids. tiktoken merges by a rule of its own, which gives the
    same ids for nearly every vocabulary; where it does not, the vectors say so.
    """
    texts = {f"panel/{name}": text for name, text in PANEL.items()}
    texts |= {f"hard/{name}": text for name, text in HARD.items()} | dict(samples)
    vectors = [Vector(name=name, text=text, ids=tokenizer.encode(text)) for name, text in texts.items()]
    engines: dict[str, str | None] = {tokenizer.engine: None}
    others: dict[str, Engine | str] = {
        "tokenizers": tokenizers_engine(directory),
        "tiktoken": tiktoken_engine(directory, tokenizer),
    }
    for name, engine in others.items():
        if isinstance(engine, str):
            engines[name] = engine
        elif different := first_difference(engine, vectors):
            if name == "tokenizers":
                raise TokenizerError(f"{directory}: tokenizers gives other ids than tokenmill: {different}")
            engines[name] = f"other ids for the text {different.split(':')[0]}"
        else:
            engines[name] = None
    return Golden(tokenizer_digest=tokenizer.digest, engines=engines, vectors=vectors)


def _hash(text: str) -> str:
    return hashlib.sha256(_SEED + text.encode()).hexdigest()
