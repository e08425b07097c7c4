"""gigatoken reads tokenizer.json. It always makes ids of special tokens."""

from tokenmill.features.conform.program.consumer import CONSUMERS, Consumer, Encoders, Library, Subject


def gigatoken(library: Library, subject: Subject) -> Encoders:
    return {"special": library.Tokenizer(subject.file("tokenizer.json")).encode}


CONSUMERS["gigatoken"] = Consumer("gigatoken", gigatoken)
