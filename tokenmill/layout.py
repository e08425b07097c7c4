"""A project's names: its stages, and its files and folders, seen from the project's folder."""

import re

STAGES = ("count", "train-vocab", "encode", "validate")
DOCUMENT_STAGES = ("count", "encode", "validate")  # the stages that read documents
PARAMS_FILE = "params.yaml"
LOCK_FILE = "tokenmill.lock"
DVC_LOCK_FILE = "dvc.lock"
DVC_RUNS_DIRECTORY = ".dvc/cache/runs"  # unless DVC is configured otherwise
RAW_DIRECTORY = "data/raw"  # unless source.glob says otherwise
OBJECTS_FILE = "data/objects.json"  # the documents in object storage, for DVC
COUNTS_FILE = "data/counts/counts.parquet"
COUNTS_GROUPS_DIRECTORY = "data/counts/groups"  # only with count.by
SUPERWORDS_COUNTS_FILE = "data/counts/superwords.parquet"  # only with count.superwords
COUNTS_REPORT_FILE = "data/counts/report.json"
PROVENANCE_FILE = "data/counts/provenance.json"
TOKENIZER_DIRECTORY = "data/tokenizer"
TRAINING_FILE = "training.json"  # in TOKENIZER_DIRECTORY
TOKENS_DIRECTORY = "data/tokens"
TABLES_DIRECTORY = "data/tables"
QUARANTINE_DIRECTORY = "data/quarantine"
VOCAB_SIZES_DIRECTORY = "data/vocab_sizes"  # datasets with smaller vocabularies, each with its tokenizer and tables
UPLOADS_FILE = "data/uploads.json"  # where datasets were uploaded to; git keeps it
REPORT_FILE = "data/report/report.json"
METRICS_FILE = "data/report/metrics.json"
PLOTS_DIRECTORY = "data/report/plots"
GATES_FILE = "data/report/gates.json"  # not kept by DVC: it depends on what is published
PAGE_FILE = "data/report/report.html"  # not kept by DVC: it has the seconds of the last build
OUTPUT_DIRECTORIES = {
    "count": ("data/counts",),
    "train-vocab": (TOKENIZER_DIRECTORY,),
    "encode": (TOKENS_DIRECTORY, QUARANTINE_DIRECTORY, TABLES_DIRECTORY),
    "validate": ("data/report",),
}
SCRATCH_DIRECTORY = ".tokenmill"
CHECKPOINT_DIRECTORY = ".tokenmill/train-vocab"
PREFECT_DIRECTORY = ".tokenmill/prefect"  # the home of a build's own Prefect server
NOTIFIED_FILE = ".tokenmill/notified.json"  # the last notice of a refresh
LAST_BUILD_FILE = ".tokenmill/last-build.json"
LAST_PLAN_FILE = ".tokenmill/last-plan.json"
RATES_FILE = ".tokenmill/rates.json"  # what each stage took when a build last ran it


def hub_split(name: str) -> str:
    """The name of a split in the dataset card: `datasets` has no other characters than these.

    >>> hub_split("held-out")
    'held_out'
    """
    return re.sub(r"\W", "_", name)
