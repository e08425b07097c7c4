"""verify finds whatever is changed in a dataset, and names file and row, even when the manifest was made to fit."""

import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.builders.document_sets import MADE_BY_0_1
from tests.builders.teams import cli
from tests.conftest import Project, make_project
from tokenmill.analysis.verify import Verdict, VerifyOptions, verify
from tokenmill.console import console
from tokenmill.dataset.manifest import Manifest, read_manifest, write_manifest
from tokenmill.dataset.tokens_digest import TokensDigest
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.regular_files import sha256_file

N_CHANGES = 1_000
DOCUMENTS = {  # no two are equal, so that two rows that are swapped make a difference
    "a.jsonl": [f"the {n} cat sat on mat {n * n}" for n in range(12)],
    "b.jsonl": [f"dogs é {n} and œufs <|begin|> {'x' * n}" for n in range(9)],
    "de/c.jsonl": [f"die Katze {n} saß auf der Matte" for n in range(7)],
}


DROPPED = {"a.jsonl": [3, 11], "b.jsonl": [0]}
"""The rows that source.drop leaves out, by shard; all but the first by their digest."""
DROP = "id,digest,reason\na.jsonl-3,,takedown\n" + "".join(
    f",{hashlib.sha256(text.encode()).hexdigest()},duplicate\n"
    for text in (DOCUMENTS["a.jsonl"][11], DOCUMENTS["b.jsonl"][0])
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose documents begin and end with tokens of their own."""
    project = make_project(tmp_path_factory.mktemp("verify") / "project", DOCUMENTS)
    project.set(
        train_vocab__special_tokens=["<|begin|>", "<|end|>"],
        encode__begin_of_document="<|begin|>",
        encode__end_of_document="<|end|>",
    )
    project.set_drop("drop.csv")
    (project.root / "drop.csv").write_text(DROP)
    project.build()
    before, console.level = console.level, -1
    yield project
    console.level = before


@pytest.fixture
def data(built: Project, tmp_path: Path) -> Path:
    """A copy of that project's folder, to change."""
    shutil.copytree(built.root / "data", tmp_path / "data")
    for name in ("params.yaml", "drop.csv"):
        shutil.copy(built.root / name, tmp_path)
    return tmp_path / "data"


def check(data: Path, with_source: bool = True, **named: Any) -> Verdict:
    source = data.parent if with_source else None
    return verify(
        data / "tokens", VerifyOptions(None, source, **{"sample_documents": 6, "seed": 0, "threads": 1} | named)
    )


def test_a_dataset_is_right_with_its_documents_and_without(data: Path) -> None:
    for with_source in (True, False):
        found = check(data, with_source)
        assert (found.result, found.findings, found.not_checked) == ("right", [], [])
        assert found.checked["documents"] == 25
        assert found.checked["sample"] == {
            "documents": 6,
            "seed": 0,
            "engines": ["tokenizers", "tiktoken"],
        }


def test_every_document_begins_and_ends_with_its_ids(data: Path) -> None:
    manifest = read_manifest(data / "tokens")
    assert (manifest.begin_of_document_id, manifest.end_of_document_id) == (0, 1)
    for shard in manifest.shards:
        for ids in pq.read_table(data / "tokens" / shard.name, partitioning=None)["input_ids"].to_pylist():
            assert (ids[0], ids[-1]) == (0, 1)
            assert not {0, 1} & set(ids[1:-1])
    config = json.loads((data / "tokenizer/tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"]) == ("<|begin|>", "<|end|>")


def test_documents_that_only_begin_with_an_id_are_checked_without_their_sources(project: Project) -> None:
    project.write("even.jsonl", [f"hello {n}" for n in range(16)])
    project.set(
        train_vocab__special_tokens=["<|begin|>"], encode__begin_of_document="<|begin|>", encode__end_of_document=None
    )
    project.build()
    found = check(project.root / "data", with_source=False)
    assert (found.result, found.findings) == ("right", [])


def test_tables_that_the_manifest_does_not_name_are_missed(data: Path) -> None:
    manifest = read_manifest(data / "tokens")
    for tables in ([], manifest.tables[1:]):
        write_manifest(manifest.model_copy(update={"tables": tables}), data / "tokens")
        for with_source in (True, False):
            said = [one.what for one in check(data, with_source).findings if one.file == "manifest.json"]
            assert f"tables: {manifest.tables[0].name} is not among them" in said[0]


def test_the_first_rows_of_a_file_begin_in_its_first_line(data: Path) -> None:
    manifest = read_manifest(data / "tokens")
    rows = [manifest.shards[0].rows[0].model_copy(update={"first_line": 5})]
    shards = [manifest.shards[0].model_copy(update={"rows": rows}), *manifest.shards[1:]]
    write_manifest(manifest.model_copy(update={"shards": shards}), data / "tokens")
    for with_source in (True, False):
        assert any("first_line" in one.what for one in check(data, with_source).findings)


def test_a_policy_that_would_have_ended_the_build_is_wrong(data: Path) -> None:
    manifest = read_manifest(data / "tokens")
    write_manifest(manifest.model_copy(update={"special_tokens_in_text": "reject"}), data / "tokens")
    for with_source in (True, False):
        [found] = (one for one in check(data, with_source).findings if one.file.endswith("b.jsonl.parquet"))
        assert "the document has the text of the special token '<|begin|>'" in found.what
        assert ("row 1: " in found.what) is with_source  # the first one was dropped, which only the documents tell


def test_rows_of_the_index_are_checked_without_the_documents_if_none_was_left_out(project: Project) -> None:
    project.build()
    data = project.root / "data"
    path = data / "tables/documents.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("row")
    rows = pa.array([7, *table["row"].to_pylist()[1:]], table.schema.field(at).type)
    path.unlink()
    pq.write_table(table.set_column(at, table.schema.field(at), rows), path)
    said = [one.what for one in check(data, with_source=False).findings]
    assert "row 0: row: found 7, expected 0" in said


def test_ids_that_do_not_decode_are_named_by_their_row(data: Path) -> None:
    manifest = read_manifest(data / "tokens")
    i = next(i for i, shard in enumerate(manifest.shards) if "c.jsonl" in shard.name)
    path = data / "tokens" / manifest.shards[i].name
    table = pq.read_table(path, partitioning=None)
    for id in (60_000, Tokenizer.load(data / "tokenizer").encode("é")[-1]):
        rows = table.to_pylist()
        rows[4]["input_ids"][2] = id
        path.unlink()
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
        _agree(data, manifest, i, rows)
        found = check(data, with_source=False).findings
        assert [(one.file, one.row) for one in found if "c.jsonl: row 4: " in one.what] == [
            (manifest.shards[i].name, 4)
        ], found


def test_the_place_of_a_difference_is_that_in_the_document(data: Path) -> None:
    raw = data / "raw/a.jsonl"
    raw.write_text(raw.read_text().replace("the 1 cat", "the 1 cut"))
    said = [one.what for one in check(data).findings if one.file == "documents/a.jsonl.parquet"]
    assert "row 1: decoded bytes from 7 on: found b'at sat" in said[0]


def test_what_is_not_there_could_not_be_checked(data: Path) -> None:
    (data / "raw/b.jsonl").unlink()
    shutil.rmtree(data / "tables")
    found = check(data)
    assert found.result == "not checked" and not found.findings
    assert [one.split(":")[0][:20] for one in found.not_checked] == [
        "the dropped document",
        "1 of 3 input files a",
        "the tables",
    ]
    assert "b.jsonl" in found.not_checked[1]
    assert found.checked["files"] == 1  # of the others, documents were dropped


def test_the_documents_of_the_project_are_those_of_the_dataset(data: Path) -> None:
    (data / "raw/new.jsonl").write_text('{"id": "x", "text": "new"}\n')
    found = check(data)
    assert [one.what.split(".")[0] for one in found.findings] == ["data/raw/new"]
    assert "does not name" in found.findings[0].what


def cut(project: Project) -> None:
    """Every kind of shard that is cut, bad documents in quarantine, and a normalizing tokenizer."""
    lines = [json.dumps({"id": f"l{n}", "text": f"line {n} e\u0301" + "y" * n}) for n in range(40)]
    lines[7] = "{"
    (project.root / "data/raw/long.jsonl").write_text("\n".join(lines) + "\n\n")
    table = pa.table({"id": [f"p{n}" for n in range(60)], "text": [f"row {n}" + "z" * n for n in range(60)]})
    pq.write_table(table, project.root / "data/raw/long.parquet", row_group_size=7)
    project.set(source__unit_bytes_max=700, source__on_bad_document="quarantine", source__bad_documents_max=1)


def test_shards_that_were_cut_are_read_where_they_were_cut(project: Project) -> None:
    cut(project)
    project.build()
    manifest = read_manifest(project.root / "data/tokens")
    assert sum("long" in shard.name for shard in manifest.shards) > 6
    found = check(project.root / "data")
    assert (found.result, found.findings, found.not_checked) == ("right", [], [])
    assert check(project.root / "data", with_source=False).result == "right"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normalizing", "not byte-level"])
def test_a_tokenizer_that_changes_text_is_compared_with_what_it_encodes(project: Project, kind: str) -> None:
    cut(project)
    project.build()
    document = json.loads((project.root / "data/tokenizer/tokenizer.json").read_text(encoding="utf-8"))
    if kind == "normalizing":
        document["normalizer"] = {"type": "NFC"}
    else:
        words = {"<|endoftext|>": 0, "[UNK]": 1, "line": 2, "row": 3, "the": 4}
        document |= {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "decoder": None}
        document["model"] = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
    (project.root / "other.json").write_text(json.dumps(document), encoding="utf-8")
    params = project.root / "params.yaml"
    text = params.read_text(encoding="utf-8")
    assert "tokenizer: null" in text
    params.write_text(text.replace("tokenizer: null", "tokenizer: {from: other.json}"), encoding="utf-8")
    assert cli(project, "pin").returncode == 0
    project.build()
    for with_source in (True, False):
        found = check(project.root / "data", with_source)
        assert (found.result, found.findings, found.not_checked) == ("right", [], [])
    manifest = read_manifest(project.root / "data/tokens")
    i = next(i for i, shard in enumerate(manifest.shards) if "long.jsonl" in shard.name)
    path = project.root / "data/tokens" / manifest.shards[i].name
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[1]["input_ids"][0] = 2 + (rows[1]["input_ids"][0] == 2)
    path.unlink()
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    _agree(project.root / "data", manifest, i, rows)
    found = check(project.root / "data")
    assert [one.file for one in found.findings if "row 1: " in one.what] == [manifest.shards[i].name]


def test_a_dataset_of_0_1_is_verified(tmp_path: Path) -> None:
    for name in ("tokens", "tokenizer"):
        shutil.copytree(MADE_BY_0_1 / name, tmp_path / "data" / name)
    shutil.copytree(MADE_BY_0_1 / "raw", tmp_path / "data/raw")
    found = check(tmp_path / "data")
    assert found.result == "not checked" and not found.findings
    assert "format 3" in found.not_checked[0]
    assert check(tmp_path / "data", with_source=False).result == "right"


def test_the_command_has_an_exit_code_for_each_answer(built: Project, data: Path) -> None:
    copied = Project(data.parent)
    assert cli(copied, "verify").returncode == 0
    (data / "raw/b.jsonl").rename(data / "b.jsonl")
    done = cli(copied, "verify", "data/tokens")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (2, "not checked")
    done = cli(copied, "verify", "data/tokens", "--no-source", "--sample", "0", "--json")
    assert (done.returncode, json.loads(done.stdout)["result"]["result"]) == (0, "right")
    n_bytes = (data / "tables/token_bytes.npy").stat().st_size
    (data / "tables/token_bytes.npy").write_bytes(b"x")
    done = cli(copied, "verify", "data/tokens", "--json")
    found = json.loads(done.stdout)["result"]
    assert (done.returncode, found["result"]) == (1, "wrong")
    assert found["findings"][0] == {
        "file": "../tables/token_bytes.npy",
        "row": None,
        "what": f"not the file that the manifest names: found 1 bytes, expected {n_bytes:,}.",
        "fix": "Run `tokenmill build --force`.",
    }
    for command in ("verify", "info"):
        done = cli(copied, command, "data/raw")
        assert done.returncode == 2 and "[TM502]: data/raw: expected a token dataset" in done.stderr
        assert "found a folder without one" in done.stderr
    for name, found in (("data/tokens/manifest.json", "a file"), ("data/tokns", "nothing there")):
        assert f"found {found}. Name the folder" in cli(copied, "info", name).stderr
    shutil.rmtree(data / "tokenizer")
    done = cli(copied, "verify")
    assert done.returncode == 2 and "name it with --tokenizer" in done.stderr
    assert cli(copied, "verify", "--sample", "-1").returncode == 2


def test_a_damaged_file_is_named_by_its_length_or_its_digest(data: Path) -> None:
    manifest = read_manifest(data / "tokens")
    path = data / "tokens" / (entry := manifest.shards[0]).name
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content + b"x")
    words = [one.what for one in check(data, with_source=False).findings if one.file == entry.name]
    assert f"found {entry.n_bytes + 1:,} bytes, expected {entry.n_bytes:,}" in words[0]
    path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    words = [one.what for one in check(data, with_source=False).findings if one.file == entry.name]
    assert words[0] == f"not the file that the manifest names (sha256 {entry.sha256[:16]}…)"


def test_the_digest_of_a_text_is_shown_as_hexadecimal_digits(data: Path) -> None:
    path = data / "tables/documents.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("sha256")
    texts = table["sha256"].to_pylist()
    other = pa.array([bytes(32), *texts[1:]], pa.binary(32))
    path.unlink()
    pq.write_table(table.set_column(at, table.schema.field("sha256"), other), path)
    said = [one.what for one in check(data, with_source=False).findings]
    assert f"row 0: sha256: found {'0' * 64}, expected {texts[0].hex()}" in said


def test_a_disk_that_is_full_says_nothing_of_the_dataset(data: Path) -> None:
    """A file of the process may have 100 bytes, so that a larger one cannot be written, as on a full disk. Python would cut its
    own bytecode there, and could not read it later."""
    command = [sys.executable, "-B", "-m", "tokenmill", "verify", "data/tokens"]
    done = subprocess.run(
        ["prlimit", "--fsize=100", *command], cwd=data.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "wrong" not in done.stdout and "File too large" in done.stderr


def test_a_tokenizer_may_be_a_file_of_any_name(data: Path) -> None:
    (data / "tokenizer/tokenizer.json").rename(data / "mine.json")
    shutil.rmtree(data / "tokenizer")
    found = verify(
        data / "tokens", VerifyOptions(data / "mine.json", data.parent, sample_documents=6, seed=0, threads=1)
    )
    assert (found.result, found.checked["sample"]) == (
        "right",
        {"documents": 6, "seed": 0, "engines": ["tokenizers"]},
    )


def test_an_input_file_that_cannot_be_cut_as_it_was_is_one_finding(project: Project) -> None:
    cut(project)
    project.build()
    path = project.root / "data/raw/long.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:20]))
    table = pq.read_table(project.root / "data/raw/long.parquet")
    pq.write_table(table, project.root / "data/raw/long.parquet", row_group_size=11)
    found = [one.what for one in check(project.root / "data", threads=2).findings]
    assert [one.split(":")[0] for one in found] == ["data/raw/long.jsonl", "data/raw/long.parquet"]
    assert "a part begins at line" in found[0] and "no row group does" in found[1]


def test_findings_are_in_the_order_of_the_files_whatever_the_number_of_threads(data: Path) -> None:
    manifest = read_manifest(data / "tokens")
    for shard in manifest.shards:
        path = data / "tokens" / shard.name
        path.write_bytes(path.read_bytes()[:-1])
    found = [check(data, threads=n).findings for n in (1, 3)]
    assert found[0] == found[1]
    names = [one.file for one in found[0] if not one.file.startswith("..")]
    assert list(dict.fromkeys(names)) == [shard.name for shard in manifest.shards]


def test_a_file_of_no_input_file_is_wrong(data: Path) -> None:
    path = data / "tokens/manifest.json"
    manifest = json.loads(path.read_text())
    entry = manifest["shards"][0]
    empty = pq.read_schema(data / "tokens" / entry["name"]).empty_table()
    pq.write_table(empty, data / "tokens/empty.parquet")
    sums = dict.fromkeys(("n_documents", "n_tokens", "text_bytes"), 0)
    manifest["shards"].append(entry | sums | {"name": "empty.parquet", "rows": []})
    path.write_text(json.dumps(manifest))
    [found] = check(data, with_source=False).findings
    assert found.file == "manifest.json" and "shards.3.rows" in found.what


def test_info_says_what_the_manifest_says(data: Path) -> None:
    copied = Project(data.parent)
    said = cli(copied, "info").stdout
    assert "begins with id 0 and ends with id 1" in said
    found = json.loads(cli(copied, "info", "data/tokens", "--json").stdout)["result"]
    assert (found["documents"], found["files"], found["format_version"]) == (25, 3, 10)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_change_is_found_and_named(built: Project, tmp_path: Path) -> None:
    """1,000 seeded changes of a byte, a row or a file, also with a manifest that agrees with itself."""
    missed = []
    for seed in range(N_CHANGES):
        data = tmp_path / "data"
        for name in ("tokens", "tables", "tokenizer"):
            shutil.copytree(built.root / "data" / name, data / name, copy_function=_copy)
        if not (data / "raw").exists():
            shutil.copytree(built.root / "data/raw", data / "raw")
            for name in ("params.yaml", "drop.csv"):
                shutil.copy(built.root / name, tmp_path)
        rng = random.Random(seed)
        change = rng.choice(list(CHANGES))
        with_source = change in FOUND_BY_DOCUMENTS or rng.random() < 0.5
        file, row = CHANGES[change](data, rng)
        found = check(data, with_source, seed=seed)
        said = [f"{one.file}: {one.what}" for one in found.findings]
        if found.result != "wrong" or not any(file in one and (row is None or row in one) for one in said):
            missed.append((seed, change, with_source, file, row, said[:3]))
        for name in ("tokens", "tables", "tokenizer"):
            shutil.rmtree(data / name)
    assert not missed, f"{len(missed)} of {N_CHANGES}: {missed[:5]}"


def _copy(source: str, target: str) -> None:
    Path(target).write_bytes(Path(source).read_bytes())


# A change of the data folder: what comes back is the file that must be named, and words for the row, or None.
Named = tuple[str, str | None]


def _any_file(data: Path, rng: random.Random) -> Path:
    files = sorted(
        path
        for name in ("tokens", "tables")
        for path in (data / name).rglob("*")
        if path.is_file() and path.name != "README.md"
    )
    return rng.choice(files)


def _changed_bytes(change: Callable[[bytearray, random.Random], None]) -> Callable[[Path, random.Random], Named]:
    def changed(data: Path, rng: random.Random) -> Named:
        path = _any_file(data, rng)
        before = path.read_bytes()
        content = bytearray(before)
        while content == before:
            change(content, rng)
        path.write_bytes(content)
        return path.name, None

    return changed


def _flip(content: bytearray, rng: random.Random) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _cut(content: bytearray, rng: random.Random) -> None:
    del content[rng.randrange(len(content)) :]


def _append(content: bytearray, rng: random.Random) -> None:
    content += rng.randbytes(rng.randrange(1, 9))


def _delete(content: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(content))
    del content[at : at + rng.randrange(1, 9)]


def _swap(content: bytearray, rng: random.Random) -> None:
    one, other = rng.randrange(len(content)), rng.randrange(len(content))
    content[one], content[other] = content[other], content[one]


Rows = list[dict[str, Any]]


def _changed_rows(change: Callable[[Rows, random.Random], int]) -> Callable[[Path, random.Random], Named]:
    """A change of a file's rows, which tells the first row that is wrong then; the manifest is made to agree."""

    def changed(data: Path, rng: random.Random) -> Named:
        manifest = read_manifest(data / "tokens")
        i = rng.randrange(len(manifest.shards))
        path = data / "tokens" / manifest.shards[i].name
        table = pq.read_table(path, partitioning=None)
        rows = table.to_pylist()
        row = change(rows, rng)
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
        _agree(data, manifest, i, rows)
        name = manifest.shards[i].rows[0].name.removeprefix("data/raw/")
        kept = [k for k in range(len(DOCUMENTS[name])) if k not in DROPPED.get(name, [])]
        return manifest.shards[i].name, f"row {[*kept, kept[-1] + 1][row]}"

    return changed


def _agree(data: Path, manifest: Manifest, i: int, rows: Rows, **updates: Any) -> None:
    """Writes the manifest again, so that all of it fits the rows of its i-th file. `updates`: of its part of the input file."""
    path = data / "tokens" / manifest.shards[i].name
    before, digest = manifest.shards[i], TokensDigest()
    for batch in pq.read_table(path, partitioning=None).to_batches():
        digest.add(batch)
    shard = before.model_copy(
        update={
            "tokens_sha256": digest.hex(),
            "n_bytes": path.stat().st_size,
            "sha256": sha256_file(path),
            "n_documents": len(rows),
            "n_tokens": sum(len(row["input_ids"]) for row in rows),
            "text_bytes": sum(row["n_bytes"] for row in rows),
            "rows": [before.rows[0].model_copy(update={"n_documents": len(rows)} | updates)],
        }
    )
    shards = [*manifest.shards[:i], shard, *manifest.shards[i + 1 :]]
    _write(data, manifest, shards, manifest.inputs)


def _write(data: Path, manifest: Manifest, shards: list[Any], inputs: list[Any]) -> None:
    sums = {key: sum(getattr(shard, key) for shard in shards) for key in ("n_documents", "n_tokens", "text_bytes")}
    write_manifest(manifest.model_copy(update={"shards": shards, "inputs": inputs, **sums}), data / "tokens")


def _swap_rows(rows: Rows, rng: random.Random) -> int:
    one, other = sorted(rng.sample(range(len(rows)), 2))
    rows[one], rows[other] = rows[other], rows[one]
    return one


def _swap_ids_of_rows(rows: Rows, rng: random.Random) -> int:
    one, other = sorted(rng.sample(range(len(rows)), 2))
    for key in ("input_ids", "n_bytes"):
        rows[one][key], rows[other][key] = rows[other][key], rows[one][key]
    return one


def _delete_row(rows: Rows, rng: random.Random) -> int:
    row = rng.randrange(len(rows))
    del rows[row]
    return row


def _repeat_row(rows: Rows, rng: random.Random) -> int:
    row = rng.randrange(len(rows))
    rows.insert(row, dict(rows[row]))
    return row + 1


def _another_id(rows: Rows, rng: random.Random) -> int:
    row = rng.randrange(len(rows))
    ids = rows[row]["input_ids"]
    at = rng.randrange(len(ids))
    ids[at] = (ids[at] + rng.randrange(1, 272)) % 272
    return row


def _an_id_too_large(rows: Rows, rng: random.Random) -> int:
    row = rng.randrange(len(rows))
    rows[row]["input_ids"][0] = rng.randrange(272, 65536)
    return row


def _delete_id(rows: Rows, rng: random.Random) -> int:
    row = rng.randrange(len(rows))
    del rows[row]["input_ids"][rng.randrange(len(rows[row]["input_ids"]))]
    return row


def _a_special_id_inside(rows: Rows, rng: random.Random) -> int:
    row = rng.randrange(len(rows))
    rows[row]["input_ids"].insert(rng.randrange(1, len(rows[row]["input_ids"])), rng.randrange(2))
    return row


def _another_name(rows: Rows, rng: random.Random) -> int:
    row = rng.randrange(len(rows))
    rows[row]["id"] += "x"
    return row


def _another_length(rows: Rows, rng: random.Random) -> int:
    row = rng.randrange(len(rows))
    rows[row]["n_bytes"] += 1
    return row


def _delete_file(data: Path, rng: random.Random) -> Named:
    path = _any_file(data, rng)
    while path.name == "manifest.json":  # without it, it is no dataset
        path = _any_file(data, rng)
    path.unlink()
    return path.name, None


def _add_file(data: Path, rng: random.Random) -> Named:
    path = data / rng.choice(["tokens", "tables"]) / f"new-{rng.randrange(100)}.parquet"
    path.write_bytes(rng.randbytes(10))
    return path.name, None


def _swap_files(data: Path, rng: random.Random) -> Named:
    one, other = rng.sample(sorted((data / "tokens").rglob("*.parquet")), 2)
    content = one.read_bytes()
    other.rename(one)
    other.write_bytes(content)
    return one.name, None


def _forget_a_shard(data: Path, rng: random.Random) -> Named:
    """A file, its input and all that is said of them are gone."""
    manifest = read_manifest(data / "tokens")
    gone = rng.choice(manifest.shards)
    (data / "tokens" / gone.name).unlink()
    shards = [shard for shard in manifest.shards if shard is not gone]
    _write(data, manifest, shards, [one for one in manifest.inputs if one.name != gone.rows[0].name])
    return gone.rows[0].name, None


def _another_table(data: Path, rng: random.Random) -> Named:
    """One count, position or length in a table is another one, and the manifest has its digest."""
    path = rng.choice(sorted(path for path in (data / "tables").iterdir() if path.name != "dropped.parquet"))
    if path.suffix == ".npy":
        lengths = np.load(path)
        at = rng.randrange(len(lengths))
        lengths[at] += 1
        np.save(path, lengths)
        row = f"id {at}"
    else:
        table = pq.read_table(path)
        columns = [name for name in table.schema.names if pa.types.is_integer(table.schema.field(name).type)]
        name, at = rng.choice([one for one in columns if one != "row"]), rng.randrange(len(table))
        values = table[name].to_pylist()
        values[at] += 1
        table = table.set_column(
            table.schema.get_field_index(name),
            table.schema.field(name),
            pa.array(values, table.schema.field(name).type),
        )
        pq.write_table(table, path)
        row = f"row {at}"
    _agree_on_table(data, path)
    return path.name, row


def _agree_on_table(data: Path, path: Path) -> None:
    """Writes the manifest again with the digest of a table."""
    manifest = read_manifest(data / "tokens")
    tables = [
        one.model_copy(update={"n_bytes": path.stat().st_size, "sha256": sha256_file(path)})
        if one.name == path.name
        else one
        for one in manifest.tables
    ]
    write_manifest(manifest.model_copy(update={"tables": tables}), data / "tokens")


def _forget_a_dropped_document(data: Path, rng: random.Random) -> Named:
    """A line of dropped.parquet is gone, and the manifest has its digest."""
    path = data / "tables/dropped.parquet"
    table = pq.read_table(path)
    at = rng.randrange(len(table))
    pq.write_table(pa.concat_tables([table[:at], table[at + 1 :]]), path)
    _agree_on_table(data, path)
    return path.name, None


def _put_a_dropped_document_back(data: Path, rng: random.Random) -> Named:
    """A dropped document is in the dataset. The manifest agrees, and so does dropped.parquet in half of the cases: then
    only the project's source.drop tells."""
    manifest = read_manifest(data / "tokens")
    name = rng.choice(list(DROPPED))
    row = rng.choice(DROPPED[name])
    [i] = [i for i, one in enumerate(manifest.shards) if one.rows[0].name == f"data/raw/{name}"]
    text = DOCUMENTS[name][row]
    ids = [0, *Tokenizer.load(data / "tokenizer").encode(text), 1]
    path = data / "tokens" / manifest.shards[i].name
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    at = row - sum(other < row for other in DROPPED[name])
    rows.insert(at, {"id": f"{name}-{row}", "input_ids": ids, "n_bytes": len(text.encode())})
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    if rng.random() < 0.5:
        _agree(data, manifest, i, rows)
        return manifest.shards[i].name, None
    dropped = data / "tables/dropped.parquet"
    lines = pq.read_table(dropped)
    here = pc.and_(pc.equal(lines["shard"], f"data/raw/{name}"), pc.equal(lines["row"], row))
    reason = lines.filter(here)["reason"][0].as_py()
    pq.write_table(lines.filter(pc.invert(here)), dropped)
    n_dropped = {key: n - (key == reason) for key, n in manifest.n_dropped.items()}
    manifest = manifest.model_copy(update={"n_dropped": {key: n for key, n in n_dropped.items() if n}})
    _agree(data, manifest, i, rows, n_dropped=len(DROPPED[name]) - 1)
    _agree_on_table(data, dropped)
    return manifest.shards[i].name, f"row {row}: the document"


CHANGES: dict[str, Callable[[Path, random.Random], Named]] = {
    "flip": _changed_bytes(_flip),
    "cut": _changed_bytes(_cut),
    "append": _changed_bytes(_append),
    "delete": _changed_bytes(_delete),
    "swap": _changed_bytes(_swap),
    "swap rows": _changed_rows(_swap_rows),
    "swap ids of rows": _changed_rows(_swap_ids_of_rows),
    "delete row": _changed_rows(_delete_row),
    "repeat row": _changed_rows(_repeat_row),
    "another id": _changed_rows(_another_id),
    "an id too large": _changed_rows(_an_id_too_large),
    "delete id": _changed_rows(_delete_id),
    "a special id inside": _changed_rows(_a_special_id_inside),
    "another name": _changed_rows(_another_name),
    "another length": _changed_rows(_another_length),
    "delete file": _delete_file,
    "add file": _add_file,
    "swap files": _swap_files,
    "forget a shard": _forget_a_shard,
    "another table": _another_table,
    "forget a dropped document": _forget_a_dropped_document,
    "put a dropped document back": _put_a_dropped_document_back,
}
FOUND_BY_DOCUMENTS = {name for name, change in CHANGES.items() if change.__qualname__.startswith("_changed_rows")} | {
    "forget a shard",
    "put a dropped document back",
}
