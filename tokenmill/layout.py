"""Where a project has its parameters and a build leaves what it makes, seen from the project's folder."""

PARAMS_FILE = "params.yaml"
LOCK_FILE = "tokenmill.lock"
COUNTS_FILE = "data/counts/counts.parquet"
TOKENIZER_DIRECTORY = "data/tokenizer"
TOKENS_DIRECTORY = "data/tokens"
REPORT_FILE = "data/report/report.json"
SCRATCH_DIRECTORY = ".tokenmill"
