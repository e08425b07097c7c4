"""Whole builds keep to run.memory_mb_max, whatever the documents, their columns and the tokenizer are.

`make test-memory` measures every build and prints a table; the tests take a part.
"""

import argparse
import csv
import gzip
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from tests.builders import character_tokenizers
from tests.builders.small_tokenizer import small_tokenizer
from tests.builders.talks import SPECIAL
from tests.conftest import REPOSITORY, make_project

RATIO_MAX = 1.25
MEMORY_MB = (416, 1000)
ROWS = 500  # of a piece of a file
VALUE_BYTES = 60_000
SHARE_BYTES = {416: 160_000_000, 1000: 744_000_000}  # of the one worker

Row = dict[str, Any]


def write_lines(path: Path, pieces: Iterator[list[Row]]) -> None:
    opened = {".gz": gzip.open, ".zst": lambda path, _mode: pa.CompressedOutputStream(str(path), "zstd")}
    with opened.get(path.suffix, open)(path, "wb") as file:  # type: ignore[operator]
        for rows in pieces:
            file.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def write_array(path: Path, pieces: Iterator[list[Row]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for i, row in enumerate(itertools.chain.from_iterable(pieces)):
            file.write("," * (i > 0) + json.dumps(row))
        file.write("]")


def write_records(path: Path, pieces: Iterator[list[Row]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for row in itertools.chain.from_iterable(pieces):
            if writer is None:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
            writer.writerow({key: value if isinstance(value, str) else json.dumps(value) for key, value in row.items()})


def write_table(new: Callable[[str, pa.Schema], Any]) -> Callable[[Path, Iterator[list[Row]]], None]:
    def write(path: Path, pieces: Iterator[list[Row]]) -> None:
        tables = map(pa.Table.from_pylist, pieces)
        first = next(tables)
        with new(str(path), first.schema) as writer:
            for table in itertools.chain([first], tables):
                for start in range(0, len(table), 50):
                    writer.write_table(table.slice(start, 50))

    return write


def write_text(path: Path, pieces: Iterator[list[Row]]) -> None:
    path.write_text("|".join(row["text"] for row in itertools.chain.from_iterable(pieces)), encoding="utf-8")


def write_row_groups(path: Path, pieces: Iterator[list[Row]]) -> None:
    tables = map(pa.Table.from_pylist, pieces)
    first = next(tables)
    with pq.ParquetWriter(path, first.schema) as writer:
        for table in itertools.chain([first], tables):
            writer.write_table(table)


FORMATS: dict[str, Callable[[Path, Iterator[list[Row]]], None]] = {
    "a.jsonl": write_lines,
    "a.jsonl.gz": write_lines,
    "a.jsonl.zst": write_lines,
    "a.json": write_array,
    "a.csv": write_records,
    "a.parquet": write_row_groups,
    "a.arrow": write_table(pa.ipc.new_file),
    "a.txt": write_text,
}
BESIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "ids": ("id", {}),
    "languages": ("lang", {"validate__language_column": "lang"}),
    "groups": ("group", {"encode__split_group": "group", "encode__splits": {"train": 0.9, "test": 0.1}}),
    "kept columns": ("note", {"source__keep_columns": ["note"]}),
}
COLUMNS = (*BESIDE, "one long text", "many short ones")
ENGINES = ("core", "characters", "tokenizers")
KINDS = ("text", "chat")


class Cell(NamedTuple):
    """One build of the sweep."""

    format: str
    column: str
    engine: str
    kind: str
    memory_mb: int


CELLS = [
    Cell(*cell)
    for cell in itertools.product(FORMATS, COLUMNS, ENGINES, KINDS, MEMORY_MB)
    if cell[0] != "a.txt" or (cell[1] not in BESIDE and cell[3] == "text")
]


def rows_of(cell: Cell) -> Iterator[list[Row]]:
    """The rows of the cell's file, in pieces: beside short texts 0.4 times the memory in values, or documents of the largest
    length, or many."""
    long_bytes = max(4 << 20, SHARE_BYTES[cell.memory_mb] // 56) - 1000
    n_rows, text = 3, "ab " * (long_bytes // 3 - 2) + "🙂"
    name = BESIDE[cell.column][0] if cell.column in BESIDE else ""
    if name:
        n_rows, text = int(0.4e6 * cell.memory_mb / VALUE_BYTES), "ab"
    elif cell.column == "many short ones":
        n_rows, text = 400 * cell.memory_mb // (10 if cell.kind == "chat" else 1), "ab"
    for start in range(0, n_rows, ROWS if len(text) < 9 else 1):
        rows = []
        for i in range(start, min(start + (ROWS if len(text) < 9 else 1), n_rows)):
            messages = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": text}]
            row = {"id": f"{i}", **({"messages": messages} if cell.kind == "chat" else {"text": text})}
            rows.append(row | ({name: f"{i:0{VALUE_BYTES}}"} if name else {}))
        yield rows


def write_tokenizer(engine: str, folder: Path) -> None:
    """A tokenizer that this engine runs, with the special tokens of ChatML."""
    if engine == "core":
        small_tokenizer(folder)
        return
    folder.mkdir()
    if engine == "characters":
        library = tokenizers.Tokenizer.from_str(json.dumps(character_tokenizers.document()))
    else:
        library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
        library.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    library.add_special_tokens(["<|endoftext|>", *SPECIAL])
    library.save(str(folder / "tokenizer.json"))


class Outcome(NamedTuple):
    """What became of a build. `ratio`: the most memory that it held, over the limit."""

    ratio: float
    returncode: int
    said: str


def measure(cell: Cell, folder: Path) -> Outcome:
    """Builds in a process of its own."""
    project = make_project(folder / "project", {})
    (project.root / "data/raw").mkdir(parents=True)
    FORMATS[cell.format](project.root / "data/raw" / cell.format, rows_of(cell))
    write_tokenizer(cell.engine, project.root / "words")
    project.set(
        tokenizer={"from": "words"}, run__memory_mb_max=cell.memory_mb, run__workers=1, source__text_separator="|"
    )
    if cell.column in BESIDE:
        project.set(**BESIDE[cell.column][1])
    if cell.kind == "chat":
        chat = {"template": "chatml", "stop_token": "unchecked"}
        project.set(source__messages_column="messages", encode__end_of_document=None, encode__chat=chat)
    command = [sys.executable, "-P", "-m", "tokenmill", "build", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with tempfile.TemporaryFile() as said:
        running = subprocess.Popen(command, cwd=project.root, env=environment, stderr=said, stdout=said)
        most = 0
        while running.poll() is None:
            most = max(most, _held_bytes(running.pid))
            time.sleep(0.005)
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    return Outcome(most / 1e6 / cell.memory_mb, running.returncode, text)


def _held_bytes(pid: int) -> int:
    """The memory of a process without pages of files, which the system may take back; 0 when it has ended."""
    try:
        _size, resident, of_files, *_ = map(int, Path(f"/proc/{pid}/statm").read_bytes().split())
    except (OSError, ValueError):
        return 0
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


def problem(outcome: Outcome) -> str:
    """Why an outcome is wrong; nothing if it is right: a build that ends well or names what is too large, within the limit."""
    if outcome.returncode == 0 or (
        outcome.returncode == 2 and any(f"error[{code}]" in outcome.said for code in ("TM100", "TM206"))
    ):
        return "" if outcome.ratio <= RATIO_MAX else f"{outcome.ratio:.2f} times the memory"
    return f"exit {outcome.returncode}: {outcome.said[-300:]}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "column", "engine", "kind"),
    [
        ("a.jsonl", "one long text", "core", "chat"),
        ("a.jsonl.zst", "ids", "core", "chat"),
        ("a.json", "languages", "core", "text"),
        ("a.parquet", "groups", "tokenizers", "text"),
        ("a.jsonl", "one long text", "tokenizers", "chat"),
        ("a.jsonl", "one long text", "characters", "chat"),
        ("a.arrow", "kept columns", "characters", "text"),
    ],
)
def test_a_build_keeps_to_its_memory(tmp_path: Path, format: str, column: str, engine: str, kind: str) -> None:
    assert not problem(measure(Cell(format, column, engine, kind, MEMORY_MB[0]), tmp_path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="cells with these words alone, such as a.jsonl ids 416")
    words = parser.parse_args().words
    for cell in CELLS:
        if set(words) <= {str(part) for part in cell}:
            with tempfile.TemporaryDirectory(prefix="memory-") as folder:
                outcome = measure(cell, Path(folder))
            print(f"{outcome.ratio:.2f}", *cell, problem(outcome) or "right", sep="\t", flush=True)


if __name__ == "__main__":
    main()
