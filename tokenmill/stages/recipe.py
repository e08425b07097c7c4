"""The four stages of a build in order, with the arguments of each. It does not know the orchestrator."""

from functools import partial

from tokenmill.layout import COUNTS_FILE, TOKENIZER_DIRECTORY
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.executor import RunUnits, run_in_threads
from tokenmill.summary import StageSummary


def run_inline(build: Build) -> list[StageSummary]:
    """Runs count → train-vocab → encode → validate in this process, with units in threads, and gives each stage's result."""
    run_units = run_in_threads(build.workers)
    build.stage("count", partial(count, run_units=run_units))
    build.stage("train-vocab", train_vocab)
    build.stage("encode", partial(encode, run_units=run_units))
    build.stage("validate", partial(validate, run_units=run_units))
    return build.finished()


def count(build: Build, run_units: RunUnits) -> StageSummary:
    """Documents → exact counts of pre-tokens."""
    from tokenmill.stages.count import count, count_nothing

    _refuse_mistakes(build)
    params = build.params
    if params.tokenizer is not None:
        return count_nothing(build.root)
    output = (build.root / COUNTS_FILE).parent
    return count(params.source, params.count, params.run.spill_directory, build.runner, run_units, output)


def train_vocab(build: Build) -> StageSummary:
    """Counts of pre-tokens → tokenizer; or an imported tokenizer."""
    from tokenmill.stages.train_vocab import import_tokenizer, train_vocab

    _refuse_mistakes(build)
    params = build.params
    if params.tokenizer is not None:
        return import_tokenizer(build.root, params.tokenizer, params.encode.chat)
    return train_vocab(
        build.root,
        params.count.pattern,
        params.train_vocab,
        params.encode.framing,
        params.publish.license,
        build.memory,
        params.run.checkpoint_every,
        (build.root / COUNTS_FILE).parent,
        build.root / TOKENIZER_DIRECTORY,
        params.encode.chat,
        None if build.force else build.store,
    )


def encode(build: Build, run_units: RunUnits) -> StageSummary:
    """Documents and tokenizer → token dataset."""
    from tokenmill.stages.encode import encode

    _refuse_mistakes(build)
    params = build.params
    return encode(params.source, params.tokenizer, params.encode, build.runner, run_units)


def validate(build: Build, run_units: RunUnits) -> StageSummary:
    """Token dataset → report."""
    from tokenmill.stages.validate import validate

    _refuse_mistakes(build)
    params = build.params
    return validate(params.source, params.validate_, build.runner, run_units)


def _refuse_mistakes(build: Build) -> None:
    """Before the first stage that runs: raises the errors that would otherwise come after it."""
    from tokenmill.stages.mistakes import refuse_mistakes

    refuse_mistakes(build)
