"""mistral-common reads tekken.json. It never makes ids of special tokens in a text, but knows them by name."""

import importlib

from tokenmill.features.conform.program.consumer import CONSUMERS, Consumer, Encoders, Library, Subject


def mistral_common(_library: Library, subject: Subject) -> Encoders:
    tekken = importlib.import_module("mistral_common.tokens.tokenizers.tekken")
    made = tekken.Tekkenizer.from_file(subject.file("tekken.json"))

    id_of = getattr(made, "get_special_token", None) or made.get_control_token  # the name in earlier releases

    def token(name: str) -> list[int] | None:
        try:
            return [id_of(name)]
        except ValueError:
            return None

    return {"text": lambda text: made.encode(text, bos=False, eos=False), "token": token}


CONSUMERS["mistral-common"] = Consumer("mistral_common", mistral_common)
