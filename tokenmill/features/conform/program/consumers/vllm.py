"""vLLM reads the folder by its own function, which gives a tokenizer of transformers."""

from tokenmill.features.conform.program.consumer import (
    CONSUMERS,
    Consumer,
    Encoders,
    Library,
    Subject,
    encoders_of,
    first_module,
)


def vllm(_library: Library, subject: Subject) -> Encoders:
    home = first_module("vllm.tokenizers", "vllm.transformers_utils.tokenizer")
    return encoders_of(home.get_tokenizer(subject.folder))


CONSUMERS["vllm"] = Consumer("vllm", vllm)
