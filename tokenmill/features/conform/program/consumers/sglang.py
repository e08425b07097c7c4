"""SGLang reads the folder by its own function, which gives a tokenizer of transformers."""

from tokenmill.features.conform.program.consumer import (
    CONSUMERS,
    Consumer,
    Encoders,
    Library,
    Subject,
    encoders_of,
    first_module,
)


def sglang(_library: Library, subject: Subject) -> Encoders:
    home = first_module("sglang.srt.utils.hf_transformers_utils", "sglang.srt.hf_transformers_utils")
    return encoders_of(home.get_tokenizer(subject.folder))


CONSUMERS["sglang"] = Consumer("sglang", sglang)
