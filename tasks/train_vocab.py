"""train-vocab: counts of pre-tokens → tokenizer, as one task. Importing a published tokenizer needs no task."""

from typing import Any

from prefect import State, task
from prefect.states import Completed

from tokenmill.orchestration.prefect_tasks import STAGE_TASK
from tokenmill.pipeline.build import Build
from tokenmill.quantities import size
from tokenmill.stages import recipe
from tokenmill.summary import StageSummary


def train_vocab(build: Build) -> None:
    """Trains or imports the tokenizer in data/tokenizer, unless the stage is up to date."""
    build.stage("train-vocab", _train if build.params.tokenizer is None else recipe.train_vocab)


def _train(build: Build) -> StageSummary:
    n_tokens = build.params.train_vocab.vocab_size

    @task(name="train-vocab", task_run_name=f"train-vocab {n_tokens:,} tokens", **STAGE_TASK)
    def train() -> State[Any]:
        done = recipe.train_vocab(build)
        n_tokens, text, seconds = done.n_tokens or 0, size((done.text_mb or 0) * 1e6), done.seconds or 0
        return Completed(message=f"train-vocab: {n_tokens:,} tokens from {text} of text, {seconds:.1f} s", data=done)

    summary: StageSummary = train().result()  # a task that returns a state gives that state to its caller
    return summary
