"""The text that is measured on: english documents beside the project where they are, else the sample in data/raw."""

from collections.abc import Iterator
from pathlib import Path

from tokenmill.corpus.reader import find_shards, read_batches

ROOT = Path(__file__).parent.parent
ROOT_CORPUS = ROOT.parent / "shared/corpus"
ENGLISH = ROOT_CORPUS / "english"
_TEXT_COLUMN = {"multilingual": "body"}


def documents(n_bytes_max: int) -> list[str]:
    """Whole documents, of about `n_bytes_max` bytes together."""
    glob = f"{ENGLISH}/*.jsonl.zst" if ENGLISH.is_dir() else "data/raw/**/*"
    found: list[str] = []
    n_bytes = 0
    for shard in find_shards(ROOT, glob):
        for batch in read_batches(shard, "text", None, None):
            for text in batch.texts.to_pylist():
                found.append(text)
                n_bytes += len(text.encode())
                if n_bytes >= n_bytes_max:
                    return found
    return found


def lines_of(*names: str) -> Iterator[str]:
    """The lines, with their ends, of all documents of corpora beside the project; of the sample where they are not: what every
    tool reads alike, those that read files by line, too."""
    for name in names if ENGLISH.is_dir() else ("",):
        glob = f"{ROOT_CORPUS / name}/*" if name else "data/raw/**/*"
        for shard in find_shards(ROOT, glob):
            for batch in read_batches(shard, _TEXT_COLUMN.get(name, "text"), None, None):
                for text in batch.texts.to_pylist():
                    yield from (
                        line for line in text.splitlines(keepends=True) if line.endswith("\n") and "\r" not in line
                    )
