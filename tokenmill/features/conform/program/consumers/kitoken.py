"""kitoken reads tokenizer.json."""

from tokenmill.features.conform.program.consumer import CONSUMERS, Consumer, Encoders, Library, Subject


def kitoken(library: Library, subject: Subject) -> Encoders:
    made = library.Kitoken.from_file(subject.file("tokenizer.json"))
    return {"text": lambda text: made.encode(text, False), "special": lambda text: made.encode(text, True)}


CONSUMERS["kitoken"] = Consumer("kitoken", kitoken)
