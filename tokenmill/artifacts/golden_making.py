"""Makes a tokenizer's golden vectors from a fixed panel, hard cases and samples of its own corpus."""

from collections.abc import Mapping
from pathlib import Path

from tokenmill.artifacts.golden import Encode, Golden, Vector, first_difference, tiktoken_engine, tokenizers_engine
from tokenmill.artifacts.golden_texts import HARD, PANEL
from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.tokenizer import Tokenizer


def make_golden(directory: Path, tokenizer: Tokenizer, samples: Mapping[str, str]) -> Golden:
    """The golden vectors of the tokenizer saved in `directory`, from the panel, the hard cases and `samples`.

    Raises TokenizerError if the tokenizers library gives other ids. tiktoken merges by its own rule, which gives the same ids
    for nearly every vocabulary; if it gives others, the golden vectors record that.
    """
    texts = {f"panel/{name}": text for name, text in PANEL.items()}
    texts |= {f"hard/{name}": text for name, text in HARD.items()} | dict(samples)
    vectors = [Vector(name=name, text=text, ids=tokenizer.encode(text)) for name, text in texts.items()]
    engines: dict[str, str | None] = {tokenizer.engine: None}
    others: dict[str, Encode | str] = {
        "tokenizers": tokenizers_engine(directory),
        "tiktoken": tiktoken_engine(directory, tokenizer),
    }
    for name, engine in others.items():
        if isinstance(engine, str):
            engines[name] = engine
        elif different := first_difference(engine, vectors):
            if name == "tokenizers":
                raise TokenizerError(directory, f"tokenizers gives other ids than tokenmill: {different}")
            engines[name] = f"other ids for the text {different.split(':')[0]}"
        else:
            engines[name] = None
    return Golden(tokenizer_digest=tokenizer.digest, engines=engines, vectors=vectors)
