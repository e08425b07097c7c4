"""What a build does, in order; it knows nothing of the orchestrator."""

from collections.abc import Callable
from functools import partial
from importlib import import_module

from tokenmill.build import Build
from tokenmill.console import StageSummary
from tokenmill.layout import COUNTS_FILE, STAGES, TOKENIZER_DIRECTORY

Run = Callable[[Build], StageSummary]


def _directly(run: Run, build: Build) -> StageSummary:
    return run(build)


def run_stages(build: Build, train: Callable[[Run, Build], StageSummary] = _directly) -> list[StageSummary]:
    """count → train-vocab → encode → validate; the result is what each stage did.

    `train` carries out the one stage without units.
    """
    return [
        *build.stage("count", _count),
        *build.stage("train-vocab", partial(train, _train_vocab)),
        *build.stage("encode", _encode),
        *build.stage("validate", _validate),
    ]


def import_stages() -> None:
    """Imports the code of all stages, and with it the libraries that read the data; else a stage does when it runs."""
    for stage in STAGES:
        import_module(f"tokenmill.tasks.{stage.replace('-', '_')}")


def _count(build: Build) -> StageSummary:
    from tokenmill.tasks.count import count, count_nothing

    params = build.params
    if params.tokenizer is not None:
        return count_nothing(build.root)
    return count(
        params.source,
        params.count,
        build.spill_directory,
        build.workshop,
        (build.root / COUNTS_FILE).parent,
    )


def _train_vocab(build: Build) -> StageSummary:
    from tokenmill.tasks.train_vocab import take_tokenizer, train_vocab

    params = build.params
    if params.tokenizer is not None:
        return take_tokenizer(build.root, params.tokenizer)
    return train_vocab(
        build.root,
        params.source,
        build.workshop.corpus.sha256,
        params.count.pattern,
        params.train_vocab,
        params.encode.end_of_document,
        params.publish.license,
        build.memory,
        params.run.checkpoint_every,
        build.root / COUNTS_FILE,
        build.root / TOKENIZER_DIRECTORY,
    )


def _encode(build: Build) -> StageSummary:
    from tokenmill.tasks.encode import encode

    params = build.params
    return encode(params.source, params.tokenizer, params.encode, build.workshop)


def _validate(build: Build) -> StageSummary:
    from tokenmill.tasks.validate import validate

    params = build.params
    return validate(params.source, params.validate_.sample_documents, build.workshop)
