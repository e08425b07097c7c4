"""The text that is measured on: english documents beside the project where they are, else the sample in data/raw."""

from pathlib import Path

from tokenmill.corpus import find_shards, read_batches

ROOT = Path(__file__).parent.parent
ENGLISH = ROOT.parent / "shared/corpus/english"


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


def lines(n_bytes_max: int) -> list[str]:
    """Lines of such documents with their line ends: what every tool reads alike, those that read files by line, too."""
    found = [line for text in documents(n_bytes_max) for line in text.splitlines(keepends=True)]
    return [line for line in found if line.endswith("\n") and "\r" not in line]
