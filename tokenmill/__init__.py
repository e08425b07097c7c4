"""tokenmill: from a corpus of documents to a versioned tokenizer and a token dataset, proved right.

>>> counter = Counter(pattern="gpt2")
>>> counter.update(["the cat sat on the mat", "the dog sat on the log"])
>>> tokenizer = train_vocab(counter.finish(), vocab_size=270, pattern="gpt2", special_tokens=["<|endoftext|>"])
>>> tokenizer.decode(tokenizer.encode("the cat"))
'the cat'
"""

from tokenmill.counts import Counter
from tokenmill.tokenizer import Tokenizer
from tokenmill.training import train_vocab

__version__ = "0.1.0"

__all__ = ["Counter", "Tokenizer", "__version__", "train_vocab"]
