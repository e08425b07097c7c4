"""sentencepiece reads tokenizer.model. It never makes ids of control tokens in a text."""

from tokenmill.conform.consumer import CONSUMERS, Consumer, Encoders, Library, Subject


def sentencepiece(library: Library, subject: Subject) -> Encoders:
    return {"text": library.SentencePieceProcessor(model_file=subject.file("tokenizer.model")).encode}


CONSUMERS["sentencepiece"] = Consumer("sentencepiece", sentencepiece)
