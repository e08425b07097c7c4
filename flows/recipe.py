"""What a build does, in order; it knows nothing of the orchestrator."""

from tasks.count import count
from tasks.encode import encode
from tasks.train_vocab import train_vocab
from tasks.validate import validate
from tokenmill.build import Build
from tokenmill.console import StageSummary


def run_stages(build: Build) -> list[StageSummary]:
    """count → train-vocab → encode → validate; the result is what each stage did."""
    root, params, run_units = build.root, build.params, build.run_units
    source, pattern, end = params.source, params.count.pattern, params.encode.end_of_document
    return [
        *build.stage("count", lambda: count(root, source, pattern, build.memory_mb_max_unit, run_units)),
        *build.stage("train-vocab", lambda: train_vocab(root, pattern, params.train_vocab, end, build.workers)),
        *build.stage("encode", lambda: encode(root, source, params.encode, run_units)),
        *build.stage("validate", lambda: validate(root, source, params.validate_.sample_documents, run_units)),
    ]
