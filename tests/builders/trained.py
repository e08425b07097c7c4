"""A tokenizer that is trained on sources of Python, and texts that are hard to encode."""

import inspect
import json
import random
import textwrap
from collections.abc import Sequence
from typing import Any

from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.pretokenizers.patterns import names

TEXT = [inspect.getsource(module) for module in (json.decoder, json.encoder, textwrap, random, inspect)]
END = "<|endoftext|>"
SPECIAL = [END, "<|pad|>"]
TRICKY = [
    "",
    " ",
    "   \n\n\t x  ",
    "it's they'LL I'd",
    "naïve café – 東京 🙂 👩‍👩‍👧 é̂",
    "\x00\x01\r\n\x7f\u2028\ufeff",
    "0123456789 12 345",
    f"a{END}b<|pad|><|pad|",
    "def f(x):\n    return x ** 2\n" * 3,
    "a" * 5000,
]
PATTERNS = [*names(), None, r"\s+|[^\s]+"]


def trained(texts: Sequence[str], pattern: str | None = "gpt2", **settings: Any) -> Tokenizer:
    """A tokenizer that is trained on these texts."""
    counter = Counter(pattern)
    counter.update(texts)
    return train_vocab(counter.finish(), pattern=pattern, **settings)


TOKENIZER = trained(TEXT, vocab_size=1200, special_tokens=SPECIAL)
