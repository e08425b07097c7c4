"""mistral-common reads tekken.json. It never makes ids of special tokens in a text."""

import importlib

from tokenmill.conform.consumer import CONSUMERS, Consumer, Encoders, Library, Subject


def mistral_common(_library: Library, subject: Subject) -> Encoders:
    tekken = importlib.import_module("mistral_common.tokens.tokenizers.tekken")
    made = tekken.Tekkenizer.from_file(subject.file("tekken.json"))
    return {"text": lambda text: made.encode(text, bos=False, eos=False)}


CONSUMERS["mistral-common"] = Consumer("mistral_common", mistral_common)
