"""transformers reads the folder by AutoTokenizer: as usual, and with use_fast=False."""

from functools import partial

from tokenmill.features.conform.program.consumer import CONSUMERS, Consumer, Encoders, Library, Subject, encoders_of


def transformers(library: Library, subject: Subject, use_fast: bool = True) -> Encoders:
    return encoders_of(library.AutoTokenizer.from_pretrained(subject.folder, use_fast=use_fast, local_files_only=True))


CONSUMERS["transformers"] = Consumer("transformers", transformers)
CONSUMERS["transformers-slow"] = Consumer("transformers", partial(transformers, use_fast=False))
