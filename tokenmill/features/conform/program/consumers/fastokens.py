"""fastokens reads tokenizer.json."""

from tokenmill.features.conform.program.consumer import CONSUMERS, Consumer, Encoders, Library, Subject


def fastokens(library: Library, subject: Subject) -> Encoders:
    made = library.Tokenizer.from_file(subject.file("tokenizer.json"))
    return {
        "text": lambda text: made.encode(text, split_special_tokens=True).ids,
        "special": lambda text: made.encode(text).ids,
    }


CONSUMERS["fastokens"] = Consumer("fastokens", fastokens)
