"""The four stages of a build. It does not know the orchestrator."""

from functools import partial

from tokenmill.layout import COUNTS_FILE, REPORT_FILE, TOKENIZER_DIRECTORY
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.own_step import run_commands
from tokenmill.pipeline.pools import Threads
from tokenmill.rounds import Stage
from tokenmill.summary import StageSummary


def run_inline(build: Build) -> list[StageSummary]:
    """Runs the stages of dvc.yaml in order, with units in threads of this process, and gives each one's result. Steps of the
    project's own run by their commands."""
    ours = {"count": count, "train-vocab": train_vocab, "encode": encode, "validate": validate}
    pool = Threads(build.workers)
    for name in build.stages:
        build.stage(name, ours.get(name) or partial(_run_commands, name), pool)
    return build.finished()


def count(build: Build) -> Stage:
    """Documents → exact counts of pre-tokens."""
    from tokenmill.stages.count import count, count_nothing

    _refuse_mistakes(build)
    if build.params.tokenizer is not None:
        return count_nothing(build.root)
    return (yield from count(build.project, (build.root / COUNTS_FILE).parent))


def train_vocab(build: Build) -> Stage:
    """Counts of pre-tokens → tokenizer; or an imported tokenizer."""
    from tokenmill.stages.train_vocab import import_tokenizer, train_vocab

    _refuse_mistakes(build)
    root, params = build.root, build.params
    if params.tokenizer is not None:
        return import_tokenizer(root, params.tokenizer, params.encode.chat)
    counted = (root / COUNTS_FILE).parent
    return (yield from train_vocab(root, params, build.memory, counted, root / TOKENIZER_DIRECTORY))


def encode(build: Build) -> Stage:
    """Documents and tokenizer → token dataset."""
    from tokenmill.stages.encode import encode

    _refuse_mistakes(build)
    return (yield from encode(build.project))


def validate(build: Build) -> Stage:
    """Token dataset → report."""
    from tokenmill.stages.validate import validate

    _refuse_mistakes(build)
    (build.root / REPORT_FILE).unlink(missing_ok=True)  # so that a failed check never leaves an old "all good"
    return (yield from validate(build.project))


def _run_commands(name: str, build: Build) -> None:
    run_commands(build.root, name)


def _refuse_mistakes(build: Build) -> None:
    """Before the first stage that runs: raises the errors that would otherwise come after it."""
    from tokenmill.stages.mistakes import refuse_mistakes

    refuse_mistakes(build)
