"""The four stages of a build in order, with the arguments of each. It does not know the orchestrator."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder

from tokenmill.console import StageSummary
from tokenmill.layout import COUNTS_FILE, STAGES, TOKENIZER_DIRECTORY
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.executor import RunUnits, run_in_threads


def run_inline(build: Build) -> list[StageSummary]:
    """Runs count → train-vocab → encode → validate in this process, with units in threads, and gives each stage's result."""
    run_units = run_in_threads(build.workers)
    with _without_pandas():
        build.stage("count", partial(count, run_units=run_units))
        build.stage("train-vocab", train_vocab)
        build.stage("encode", partial(encode, run_units=run_units))
        build.stage("validate", partial(validate, run_units=run_units))
        return build.finished()


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Hides pandas in the block. pyarrow imports it for the first array that is made, if it is installed; that takes 0.2 s and
    30 MB. Code of a project, which may need pandas, does not run here."""
    sys.meta_path.insert(0, hides := _HidesPandas())
    try:
        yield
    finally:
        sys.meta_path.remove(hides)


class _HidesPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def import_stages() -> None:
    """Imports the code of all stages and the libraries that read data. Without this, a stage does so when it runs."""
    for stage in STAGES:
        import_module(f"tokenmill.stages.{stage.replace('-', '_')}")


def count(build: Build, run_units: RunUnits) -> StageSummary:
    """Documents → exact counts of pre-tokens."""
    from tokenmill.stages.count import count, count_nothing

    params = build.params
    if params.tokenizer is not None:
        return count_nothing(build.root)
    output = (build.root / COUNTS_FILE).parent
    return count(params.source, params.count, build.spill_directory, build.runner, run_units, output)


def train_vocab(build: Build) -> StageSummary:
    """Counts of pre-tokens → tokenizer; or an imported tokenizer."""
    from tokenmill.stages.train_vocab import take_tokenizer, train_vocab

    params = build.params
    if params.tokenizer is not None:
        return take_tokenizer(build.root, params.tokenizer)
    return train_vocab(
        build.root,
        params.count.pattern,
        params.train_vocab,
        params.encode.end_of_document,
        params.publish.license,
        build.memory,
        params.run.checkpoint_every,
        (build.root / COUNTS_FILE).parent,
        build.root / TOKENIZER_DIRECTORY,
    )


def encode(build: Build, run_units: RunUnits) -> StageSummary:
    """Documents and tokenizer → token dataset."""
    from tokenmill.stages.encode import encode

    params = build.params
    return encode(params.source, params.tokenizer, params.encode, build.runner, run_units)


def validate(build: Build, run_units: RunUnits) -> StageSummary:
    """Token dataset → report."""
    from tokenmill.stages.validate import validate

    params = build.params
    return validate(params.source, params.validate_.sample_documents, build.runner, run_units)
