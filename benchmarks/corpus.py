"""The text that is measured on: english documents beside the project where they are, else the sample in data/raw."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.process import ROOT
from tokenmill.config.sources import Column, Reading
from tokenmill.corpus.reader import find_shards, read_batches

SHARED = ROOT.parent / "shared"
ROOT_CORPUS = SHARED / "corpus"
ENGLISH = ROOT_CORPUS / "english"
GPT2 = SHARED / "tokenizers/gpt-2/tokenizer.json"
_TEXT_COLUMN = {"multilingual": "body"}


def needed_files(*paths: Path) -> None:
    """Ends the benchmark where one of the files or folders is missing that it cannot do without."""
    for path in paths:
        if not path.exists():
            sys.exit(
                f"{path}: not found. This benchmark needs the corpus and the tokenizers that the project is measured with."
            )


def documents(n_bytes_max: int) -> list[str]:
    """Whole documents, of about `n_bytes_max` bytes together."""
    return first(texts_of("english"), n_bytes_max)


def first(texts: Iterable[str], n_bytes_max: int) -> list[str]:
    """The first texts, of about `n_bytes_max` bytes together."""
    found: list[str] = []
    n_bytes = 0
    for text in texts:
        found.append(text)
        n_bytes += len(text.encode())
        if n_bytes >= n_bytes_max:
            break
    return found


def texts_of(*names: str) -> Iterator[str]:
    """All documents of corpora beside the project; those of the sample where they are not."""
    for name in names if ENGLISH.is_dir() else ("",):
        glob = f"{ROOT_CORPUS / name}/*" if name else "data/raw/**/*"
        for shard in find_shards(ROOT, glob):
            for batch in read_batches(shard, Reading(_TEXT_COLUMN.get(name, "text"))):
                yield from batch.texts.to_pylist()


def by_language(n_bytes_max: int) -> dict[str, list[str]]:
    """The first documents of the multilingual corpus beside the project, by language, of about `n_bytes_max` bytes together."""
    found: dict[str, list[str]] = {}
    n_bytes = 0
    of_language = Column("lang", "validate.language_column")
    for shard in find_shards(ROOT, f"{ROOT_CORPUS}/multilingual/*"):
        for batch in read_batches(shard, Reading("body", columns=(of_language,))):
            languages = batch.columns[of_language].to_pylist()
            for text, language in zip(batch.texts.to_pylist(), languages, strict=True):
                found.setdefault(language, []).append(text)
                n_bytes += len(text.encode())
                if n_bytes >= n_bytes_max:
                    return found
    return found


def lines_of(*names: str) -> Iterator[str]:
    """The lines of these documents, with their ends: what every tool reads alike, those that read files by line, too."""
    for text in texts_of(*names):
        yield from (line for line in text.splitlines(keepends=True) if line.endswith("\n") and "\r" not in line)
