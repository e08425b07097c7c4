"""Makes a tokenizer's golden vectors: the fixed panel, the hard cases and a sample of its own corpus."""

from collections.abc import Mapping
from pathlib import Path

from tokenmill.artifacts.golden import Engine, Golden, Vector, first_difference, tiktoken_engine, tokenizers_engine
from tokenmill.artifacts.golden_texts import HARD, PANEL
from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.tokenizer import Tokenizer


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
