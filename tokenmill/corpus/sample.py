"""Makes sample input without a download: `python -m tokenmill.corpus.sample DIR`.

The code is the running interpreter's standard library. The prose is Python's help topics and the descriptions of installed
packages. The same interpreter and packages give the same bytes.
"""

import argparse
import re
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.kinds import kind_of
from tokenmill.errors import of_the_machine
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.shown import as_shown

N_CODE_SHARDS = 3
N_PROSE_SHARDS = 2

_ZSTD_LEVEL = 3
_NOT_CODE = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data"}
_LEGAL = re.compile(r"licen[cs]e|copying|notice|authors", re.IGNORECASE)
_PROSE_SUFFIXES = {".md", ".rst"}


class SampleDocument(NamedTuple):
    """A text with its origin."""

    id: str
    text: str


def main() -> None:
    """The command line: `python -m tokenmill.corpus.sample DIR`."""
    parser = argparse.ArgumentParser(prog="python -m tokenmill.corpus.sample", description="Gathers sample documents.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="the folder to write them into")
    asked = parser.parse_args()
    try:
        print(as_shown(str(make_sample(asked.directory))))
    except OSError as error:
        parser.exit(2, as_shown(f"sample: error: {of_the_machine(error)}") + "\n")


def make_sample(directory: Path) -> str:
    """Writes the shards of code and prose into `directory`, and gives one line that says what was made.

    A directory that already contains any shard is left as it is.
    """
    if any(kind_of(path.name) for path in directory.rglob("*") if path.is_file()):
        return f"sample: {directory} holds documents already; nothing made."
    code, prose = list(code_documents()), list(prose_documents())
    with ExitStack() as shards:  # all are written before the first is renamed; half a sample would never be completed
        for k in range(N_CODE_SHARDS):
            path = directory / "code" / f"code-{k}.parquet"
            _write_parquet(shards.enter_context(write_atomic(path)), code[k::N_CODE_SHARDS])
        for k in range(N_PROSE_SHARDS):
            path = directory / "prose" / f"prose-{k}.jsonl.zst"
            _write_jsonl_zst(shards.enter_context(write_atomic(path)), prose[k::N_PROSE_SHARDS])
    text_mb = sum(len(document.text.encode()) for document in code + prose) / 1e6
    return (
        f"sample: {len(code) + len(prose)} documents, {text_mb:.1f} MB of text, "
        f"{N_CODE_SHARDS + N_PROSE_SHARDS} shards in {directory}."
    )


def code_documents() -> Iterator[SampleDocument]:
    """The sources of the standard library that are valid UTF-8, without its tests, by path."""
    library = Path(sysconfig.get_path("stdlib"))
    names = {path.relative_to(library).as_posix() for path in library.rglob("*.py")}
    for name in sorted(names):
        text = None if _NOT_CODE & set(name.split("/")) else _read_text(library / name)
        if text is not None:
            yield SampleDocument(name, text)


def prose_documents() -> Iterator[SampleDocument]:
    """Python's help topics, then the description and the prose files of each installed package, by name."""
    for topic in sorted(topics):
        yield SampleDocument(f"python/{topic}", topics[topic])
    for name, package in sorted(_packages().items()):
        description = package.metadata.get_payload()  # type: ignore[attr-defined]
        if isinstance(description, str) and description.strip():
            yield SampleDocument(f"{name}/description", description)
        for path in sorted({file.as_posix() for file in package.files or []}):
            text = _read_text(Path(str(package.locate_file(path)))) if _is_prose(path) else None
            if text is not None:
                yield SampleDocument(f"{name}/{path}", text)


def _packages() -> dict[str, metadata.Distribution]:
    """The installed packages by normalised name (PEP 503), without tokenmill. Of two with one name, the one Python imports."""
    packages: dict[str, metadata.Distribution] = {}
    for package in metadata.distributions():
        if name := package.metadata["Name"]:  # None: leftovers of a broken pip run
            packages.setdefault(re.sub(r"[-_.]+", "-", name).lower(), package)
    packages.pop("tokenmill", None)
    return packages


def _is_prose(path: str) -> bool:
    return Path(path).suffix in _PROSE_SUFFIXES and not _LEGAL.search(path)


def _read_text(path: Path) -> str | None:
    """The file's text; None if it is not UTF-8, or missing although the package lists it."""
    try:
        return path.read_bytes().decode()
    except (UnicodeDecodeError, FileNotFoundError):
        return None


def _write_parquet(path: Path, documents: list[SampleDocument]) -> None:
    columns = {
        "id": pa.array([document.id for document in documents], pa.string()),
        "text": pa.array([document.text for document in documents], pa.string()),
    }
    pq.write_table(pa.table(columns), path, compression="zstd", compression_level=_ZSTD_LEVEL, row_group_size=200)


def _write_jsonl_zst(path: Path, documents: list[SampleDocument]) -> None:
    lines = msgspec.json.Encoder().encode_lines([document._asdict() for document in documents])
    path.write_bytes(pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(lines, asbytes=True))


if __name__ == "__main__":
    main()
