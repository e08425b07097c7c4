"""tiktoken reads vocab.tiktoken, and is given the pattern."""

import importlib

from tokenmill.features.conform.program.consumer import CONSUMERS, Cannot, Consumer, Encoders, Library, Subject


def tiktoken(library: Library, subject: Subject) -> Encoders:
    file = subject.file("vocab.tiktoken")
    if subject.pattern is None or len(subject.pattern) != 1:
        raise Cannot(f"its split is one regex; this tokenizer has {len(subject.pattern or ()) or 'none'}")
    ranks = importlib.import_module("tiktoken.load").load_tiktoken_bpe(file)
    if sum(len(token) == 1 for token in ranks) < 256:
        raise Cannot("the vocabulary has no token for some bytes")
    made = library.Encoding(
        "conform", pat_str=subject.pattern[0], mergeable_ranks=ranks, special_tokens=subject.special_tokens
    )
    return {"text": made.encode_ordinary, "special": lambda text: made.encode(text, allowed_special="all")}


CONSUMERS["tiktoken"] = Consumer("tiktoken", tiktoken)
