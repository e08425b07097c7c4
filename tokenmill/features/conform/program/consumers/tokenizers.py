"""tokenizers reads tokenizer.json: the release that is used here, and a second one beside it."""

from typing import Any

from tokenmill.features.conform.program.consumer import CONSUMERS, Consumer, Encoders, Library, Subject


def tokenizers(library: Library, subject: Subject) -> Encoders:
    tokenizer = library.Tokenizer.from_file(subject.file("tokenizer.json"))
    is_next = not hasattr(tokenizer, "no_padding")  # from 1.0 on, each call has these settings
    if not is_next:
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def encode(text: str, as_text: bool) -> Any:
        if is_next:
            settings = {"encode_special_tokens": as_text, "padding": None, "truncation": None}
        else:
            settings = {}
            tokenizer.encode_special_tokens = as_text
        return tokenizer.encode(text, add_special_tokens=False, **settings).ids

    return {"text": lambda text: encode(text, True), "special": lambda text: encode(text, False)}


CONSUMERS["tokenizers"] = Consumer("tokenizers", tokenizers)
CONSUMERS["tokenizers-1.0"] = Consumer("tokenizers", tokenizers, folder="NEXT_TOKENIZERS")
