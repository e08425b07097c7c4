"""tokenmill: from a corpus of documents to a versioned tokenizer and a token dataset, proved right.

>>> from tokenmill import Counter, train_vocab
>>> counter = Counter(pattern="gpt2")
>>> counter.update(["the cat sat on the mat", "the dog sat on the log"])
>>> tokenizer = train_vocab(counter, vocab_size=262, special_tokens=["<|endoftext|>"])
>>> tokenizer.decode(tokenizer.encode("the cat"))
'the cat'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill.counts.counter import Counter
    from tokenmill.tokenizer.tokenizer import Tokenizer
    from tokenmill.training.bpe import train_vocab
    from tokenmill_reader.token_dataset import open

__version__ = "0.3.0"

__all__ = ["Counter", "Tokenizer", "__version__", "open", "train_vocab"]

_HOMES = {
    "Counter": "tokenmill.counts.counter",
    "Tokenizer": "tokenmill.tokenizer.tokenizer",
    "open": "tokenmill_reader.token_dataset",
    "train_vocab": "tokenmill.training.bpe",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: pyarrow takes 0.2 s, which a build with nothing to do can do without."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tokenmill' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
