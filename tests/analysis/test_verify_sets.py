"""verify finds what is changed in the file sets of a dataset, even when the manifest was made to fit."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.builders.format_files import OF_TEXTS
from tests.builders.teams import build
from tests.conftest import Project, make_project
from tokenmill.analysis.verify import Verdict, VerifyOptions, verify
from tokenmill.console import console
from tokenmill.dataset.entries import FileSet, SetPart, TableFile
from tokenmill.dataset.manifest import Manifest, read_manifest, write_manifest
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill_reader.formats.columns import schema_of
from tokenmill_reader.regular_files import sha256_file

N_CHANGES = 240
SHUFFLED = {"encode__shuffle": {"seed": 1}, "encode__splits": {"train": 0.7, "validation": 0.3}}
PACKED = {"encode__pack": {"length": 24, "mode": "best_fit", "pad": "<|endoftext|>"}}
DOCUMENTS = {
    "a.jsonl": [f"the {n} cat sat on mat {n * n}" for n in range(30)],
    "b.jsonl": [f"dogs é {n} and œufs {'x' * n}" for n in range(25)],
}

Change = Callable[[list[dict[str, Any]], random.Random], list[dict[str, Any]]]


@pytest.fixture(scope="module", params=[SHUFFLED, PACKED], ids=["shuffled", "packed"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = make_project(tmp_path_factory.mktemp("verify-sets") / "project", DOCUMENTS)
    project.set(encode__formats=list(OF_TEXTS), **request.param)
    build(project)
    before, console.level = console.level, -1
    yield project
    console.level = before


@pytest.fixture
def data(built: Project, tmp_path: Path) -> Path:
    """A copy of that project's data, to change."""
    shutil.copytree(built.root / "data", tmp_path / "data")
    for path in (tmp_path / "data").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path / "data"


def check(data: Path) -> Verdict:
    return verify(data / "tokens", VerifyOptions(None, None, sample_documents=0, seed=0, threads=1))


def swap(rows: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    i, j = draw.sample([i for i, row in enumerate(rows) if row["input_ids"] != rows[0]["input_ids"]] + [0], 2)
    rows[i], rows[j] = rows[j], rows[i]
    return rows


def token(rows: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    row = draw.choice(rows)
    at = draw.randrange(len(row["input_ids"]))
    row["input_ids"][at] ^= 1
    return rows


def delete(rows: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    del rows[draw.randrange(len(rows))]
    return rows


def twice(rows: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    i = draw.randrange(len(rows))
    return [*rows[: i + 1], *rows[i:]]


def cut(rows: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    row = draw.choice([row for row in rows if len(row["input_ids"]) > max(row.get("starts", [0])) + 1])
    row["input_ids"].pop()
    return rows


def begin(rows: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    """Another start of a document in a sequence; of documents, another token."""
    several = [row for row in rows if len(row.get("starts", [])) > 1]
    if not several:
        return token(rows, draw)
    row = draw.choice(several)
    row["starts"] = row["starts"][:-1]
    return rows


CHANGES: list[Change] = [swap, token, delete, twice, cut, begin]


def rewrite(data: Path, manifest: Manifest, one: FileSet, i: int, change: Change, draw: random.Random) -> None:
    """Writes a part of a set anew with something changed, and a manifest that fits it."""
    tokens, format = data / "tokens", SET_FORMATS[one.format]
    first = tokens / one.parts[i].files[0].name
    stem, shape = first.name.split(".")[0], shape_of(manifest)
    rows = [row for batch in format.read(first.parent, stem, shape) for row in batch.to_pylist()]
    rows = change(rows, draw)
    for row in rows:
        for field in schema_of(shape):
            row.setdefault(field.name, [] if pa.types.is_list(field.type) else "x" if field.type == pa.string() else 0)
    for file in one.parts[i].files:
        (tokens / file.name).unlink()
    with format.write(first.parent, stem, shape) as add:
        add(pa.RecordBatch.from_pylist(rows, schema=schema_of(shape)))
    if format.finish is not None:
        stems = [Path(part.files[0].name).name.split(".")[0] for part in one.parts]
        for file in one.shared:
            (tokens / file.name).unlink()
        format.finish(first.parent, stems, shape)
    n_tokens = sum(len(row["input_ids"]) for row in rows)
    parts = [
        SetPart(files=fresh(tokens, part.files), n_items=part.n_items, n_tokens=part.n_tokens) for part in one.parts
    ]
    parts[i] = parts[i].model_copy(update={"n_items": len(rows), "n_tokens": n_tokens})
    changed = one.model_copy(update={"parts": parts, "shared": fresh(tokens, one.shared)})
    sets = [changed if some is one else some for some in manifest.sets]
    write_manifest(manifest.model_copy(update={"sets": sets}), tokens)


def fresh(tokens: Path, files: list[TableFile]) -> list[TableFile]:
    return [
        TableFile(name=file.name, n_bytes=(tokens / file.name).stat().st_size, sha256=sha256_file(tokens / file.name))
        for file in files
    ]


def shape_of(manifest: Manifest) -> Any:
    from tests.builders.built_sets import shape

    return shape(manifest)


@pytest.mark.slow
def test_file_sets_are_right_as_they_were_built(data: Path) -> None:
    found = check(data)
    assert (found.result, found.findings) == ("right", [])


@pytest.mark.slow
def test_each_change_of_an_item_is_found_in_its_file_though_the_manifest_fits(data: Path) -> None:
    manifest = read_manifest(data / "tokens")
    draw = random.Random(7)
    missed = []
    for n in range(N_CHANGES // 2):
        one = draw.choice(manifest.sets)
        i, change = draw.randrange(len(one.parts)), CHANGES[n % len(CHANGES)]
        kept = {file.name: (data / "tokens" / file.name).read_bytes() for file in one.files}
        rewrite(data, manifest, one, i, change, draw)
        found = check(data)
        names = {file.name for file in one.parts[i].files}
        if not any(finding.file in names for finding in found.findings):
            missed.append((one.format, change.__name__, found.findings))
        for name, content in kept.items():
            (data / "tokens" / name).write_bytes(content)
        write_manifest(manifest, data / "tokens")
    assert missed == []


@pytest.mark.slow
def test_each_change_of_a_byte_or_a_file_is_found(data: Path) -> None:
    tokens = data / "tokens"
    manifest = read_manifest(tokens)
    files = [file.name for one in manifest.sets for file in one.files]
    draw = random.Random(11)
    for n in range(N_CHANGES // 2):
        path = tokens / draw.choice(files)
        content = path.read_bytes()
        at = draw.randrange(len(content))
        match n % 5:
            case 0:
                path.write_bytes(content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :])
            case 1:
                path.write_bytes(content[:at])
            case 2:
                path.write_bytes(content + b"\0")
            case 3:
                path.unlink()
            case 4:
                (path.parent / "unknown.bin").write_bytes(b"x")
        found = check(data)
        name = path.relative_to(tokens).as_posix()
        expected = (path.parent / "unknown.bin").relative_to(tokens).as_posix() if n % 5 == 4 else name
        assert expected in {finding.file for finding in found.findings}, (name, n % 5, found.findings)
        path.write_bytes(content)
        (path.parent / "unknown.bin").unlink(missing_ok=True)
