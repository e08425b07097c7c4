"""tokenmill-reader is light: an environment with its wheel and numpy, and nothing else, reads what tokenmill writes."""

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tokenmill
import tokenmill_reader
from tests.builders.document_sets import MADE_BY_0_1, documents_dataset, shape_of, write_dataset, write_set
from tests.conftest import REPOSITORY
from tokenmill import errors
from tokenmill.analysis.info import info
from tokenmill.config.encode_params import Pack, Shuffle
from tokenmill.dataset.manifest import read_manifest
from tokenmill_reader.__main__ import main
from tokenmill_reader.manifest import own_digest

PACKAGE = REPOSITORY / "reader/tokenmill_reader"
WITHOUT_PYARROW = ["megatron", "datatrove", "olmo"]
FORMATS = ["arrow", *WITHOUT_PYARROW, "nanogpt", "llmc", "parquet"]
DOCUMENTS = [[[1, 2, 3], [4], [5, 6, 7, 8], [], [9, 10]], [[11, 12], [13]]]
WHEEL_BYTES_MAX = 150_000

READ = """
import json, sys
import tokenmill_reader

found = {}
for folder, format in json.loads(sys.argv[1]):
    dataset = tokenmill_reader.open(folder, format=format)
    shuffled = dataset.shuffle(seed=3, epoch=1)
    ranks = [dataset.shard(rank, 2) for rank in range(2)]
    next(ranks[0]), next(ranks[1])
    resumed = dataset.shard(0, 1)
    resumed.load_state_dict(json.loads(json.dumps(ranks[0].state_dict())))
    found[folder + " " + format] = {
        "items": [one.tolist() for one in dataset],
        "taken": [one.tolist() for one in dataset.take([3, 0, 3])],
        "shuffled": [one.tolist() for one in shuffled],
        "starts": [dataset.starts(i).tolist() for i in range(len(dataset))],
        "labels": [dataset.labels(i).tolist() for i in range(len(dataset))],
        "resumed": [one.tolist() for one in resumed],
        "state": ranks[1].state_dict(),
    }
    if not repr(dataset).startswith("<TokenDataset: 4 sequences"):
        sequences = dataset.sequences(5)
        found[folder + " " + format]["sequences"] = [sequences[i].tolist() for i in range(len(sequences))]
print(json.dumps(found))
print(sorted(name for name in ("pyarrow", "msgspec", "pydantic", "polars", "numpy.typing") if name in sys.modules), file=sys.stderr)
"""


def test_the_package_is_written_in_the_python_of_its_oldest_version() -> None:
    modules = sorted(PACKAGE.rglob("*.py"))
    assert len(modules) > 30
    allowed = {"tokenmill_reader", "numpy", "pyarrow", "obstore"} | set(sys.stdlib_module_names)
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path
            assert not isinstance(node, ast.Match), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
                assert not node.keywords, f"{path}:{node.lineno}: zip has no strict before Python 3.10"


def test_the_names_of_tokenmill_are_those_of_the_reader() -> None:
    assert tokenmill.open is tokenmill_reader.open
    for name in ("ParamsError", "StorageError", "TokenmillError", "ValidationError"):
        assert getattr(errors, name) is getattr(tokenmill_reader, name)
        assert issubclass(getattr(errors, name), errors.TokenmillError)
    assert tokenmill_reader.__version__ == tokenmill.__version__
    assert set(tokenmill_reader.__all__) <= set(dir(tokenmill_reader))
    with pytest.raises(AttributeError, match="no attribute 'close'"):
        _ = tokenmill_reader.close


def sets_of(folder: Path) -> list[tuple[str, str]]:
    """Datasets of each kind with their formats, as (folder, format)."""
    small = documents_dataset(folder / "documents", DOCUMENTS, ["arrow", *WITHOUT_PYARROW, "nanogpt", "llmc"])
    shape = shape_of(60_000, 5, end_id=0)
    packed, kinds = folder / "packed", [one for one in FORMATS if one != "nanogpt"]
    items = [[[1, 2, 3, 0, 9], [4, 5, 0, 9, 9]], [[6, 0, 0, 9, 9], [7, 8, 7, 8, 7]]]
    starts = [[[0, 1], [0]], [[0, 2], [0]]]
    made = [write_set(packed, name, items, shape, starts=starts) for name in kinds]
    write_dataset(packed, [], made, 60_000, pack=Pack(length=5, mode="best_fit"), pad_id=9, end_id=0)
    large = documents_dataset(
        folder / "large", [[[70_000, 1], [2**31 - 1], [5], [6]]], WITHOUT_PYARROW, id_max=2**31 - 1
    )
    return [
        *((str(small), name) for name in FORMATS),
        *((str(packed), name) for name in kinds),
        *((str(large), name) for name in WITHOUT_PYARROW),
    ]


def read_here(sets: list[tuple[str, str]]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(sets)], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def environment(folder: Path, python: str, packages: list[str]) -> str:
    """The Python of a new environment with these packages, and nothing else."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True, capture_output=True)
    inside = str(folder / "bin/python")
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    done = subprocess.run([*pip, *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no packages can be installed here: {done.stderr[-300:]}")
    return inside


def pythons() -> list[tuple[str, str, str]]:
    """Each Python that is here, with the lowest numpy and pyarrow that it takes: the oldest one, if it is here, and this one."""
    found = [(sys.executable, "numpy==1.23.2", "pyarrow==17.0.0")]
    places = [shutil.which("python3.9"), *map(str, Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))]
    oldest = [
        one for one in places if one and subprocess.run([one, "-V"], capture_output=True, check=False).returncode == 0
    ]
    return [*((one, "numpy==1.21.0", "pyarrow==17.0.0") for one in oldest[:1]), *found]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(
        REPOSITORY / "reader", folder / "reader", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    )
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(folder / "reader")], check=True, capture_output=True)
    [made] = folder.glob("*.whl")
    return made


def test_the_wheel_is_small_and_has_all_modules(wheel: Path) -> None:
    assert wheel.name == f"tokenmill_reader-{tokenmill.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size <= WHEEL_BYTES_MAX
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
    inside = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    assert names == inside
    assert [line for line in about.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: numpy>=1.21",
        'Requires-Dist: pyarrow>=17; extra == "arrow"',
        'Requires-Dist: obstore<0.13,>=0.11; extra == "storage"',
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", pythons(), ids=lambda one: Path(one[0]).name)
def test_an_environment_with_numpy_alone_reads_all_that_needs_no_pyarrow_and_with_pyarrow_the_rest(
    python: tuple[str, str, str], wheel: Path, tmp_path: Path
) -> None:
    sets = sets_of(tmp_path)
    inside = environment(tmp_path / "venv", python[0], [python[1], str(wheel)])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [inside, *arguments], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
        )

    alone = [one for one in sets if one[1] == "olmo" or (one[1] in WITHOUT_PYARROW and "packed" not in one[0])]
    assert len(alone) == 7
    done = run("-c", READ, json.dumps(alone))
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert json.loads(done.stdout) == read_here(alone)
    folders = [str(tmp_path / "documents"), str(tmp_path / "packed")]
    chosen = run(
        "-c", "import sys, tokenmill_reader as t; print(*(t.open(one).format for one in sys.argv[1:]))", *folders
    )
    assert chosen.stdout.split() == ["megatron", "olmo"]
    refused = run("-c", READ, json.dumps([[folders[0], "arrow"]]))
    assert "which needs pyarrow, and pyarrow is not installed. Install it (pip install pyarrow)" in refused.stderr

    copies = run("-m", "tokenmill_reader", "check", folders[0])
    assert (copies.returncode, copies.stderr) == (0, "")
    told = run("-m", "tokenmill_reader", "info", "--json", folders[0])
    assert json.loads(told.stdout) == info(tmp_path / "documents")

    environment(tmp_path / "venv", python[0], [python[2], python[1]])
    done = run("-c", READ, json.dumps(sets))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == read_here(sets)


def test_check_ends_with_0_for_a_copy_and_with_1_for_a_damaged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = documents_dataset(tmp_path / "tokens", DOCUMENTS, ["megatron"])
    assert main(["check", str(folder)]) == 0
    assert capsys.readouterr().out.startswith(f"{folder}: 6 files, ")
    path = folder / "megatron/part-00001.bin"
    ours = path.read_bytes()
    path.write_bytes(bytes([ours[0] ^ 1]) + ours[1:])
    (folder / "unit-0.parquet").unlink()
    (folder / "notes.txt").write_text("mine")
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"engine": "by hand"', '"engine": "by foot"'))
    assert main(["check", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("manifest.json: digest: found ") and lines[0].endswith(". It was changed.")
    assert lines[1] == "unit-0.parquet: missing; the manifest names it."
    assert lines[2].startswith("megatron/part-00001.bin: not the file that the manifest names (sha256 ")
    assert lines[3:] == ["notes.txt: not named by manifest.json.", f"{folder}: 4 wrong. Copy the dataset again."]
    path.write_bytes(ours + b"x")
    assert main(["check", str(folder)]) == 1
    assert f"found {len(ours) + 1:,} bytes, expected {len(ours):,}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shards": [{"name": "a"}]}, "shards.0.n_bytes: missing."),
        ({"id_max": "large"}, "id_max: expected a whole number from 0 to 2^63 - 1; found 'large'."),
        ({"n_tokens": -1}, "n_tokens: expected a whole number from 0 to 2^63 - 1; found -1."),
        ({"sets": None}, "sets: expected a list; found null."),
        ({"format_version": 99}, "format_version: found 99, expected 3 to 10: a newer tokenmill made this dataset."),
        (
            {"blends": [{"name": "../x", "n_bytes": 0, "sha256": ""}]},
            "'../x' is there twice, or is no name of a file in the dataset.",
        ),
    ],
    ids=str,
)
def test_a_malformed_manifest_is_one_error_with_exit_code_2(
    change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = documents_dataset(tmp_path / "tokens", DOCUMENTS, [])
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert main(["check", str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and message in printed.err and len(printed.err.splitlines()) == 1
    with pytest.raises(tokenmill_reader.ValidationError, match=r"manifest\.json"):
        tokenmill_reader.open(folder)


def test_a_folder_without_a_dataset_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path)]) == main(["info", str(tmp_path / "none")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    (tmp_path / "manifest.json").write_text("{")
    assert main(["info", str(tmp_path)]) == 2
    assert "manifest.json: is no JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arranged",
    [
        {},
        {"splits": {"train": 0.9, "validation": 0.1}},
        {"shuffle": Shuffle(seed=1)},
        {"pack": Pack(length=4, mode="none"), "pad_id": 3, "epochs": {"web": "3/2"}},
    ],
    ids=str,
)
def test_the_digest_of_a_state_is_that_of_the_whole_manifest(arranged: dict[str, Any], tmp_path: Path) -> None:
    """States of training jobs that were saved with an earlier version are still taken."""
    split = next(iter(arranged.get("splits", [])), None)
    packed = "pack" in arranged
    shape = shape_of(60_000, 4 if packed else None)
    one = write_set(tmp_path, "arrow", [[[1, 2]]], shape, split, starts=[[[0]]] if packed else None)
    write_dataset(tmp_path, [], [one], 60_000, **arranged)
    whole = read_manifest(tmp_path)
    expected = whole.tokens_digest()
    if arranged:
        assert whole.files is not None
        decides = whole.files.model_dump(
            mode="json", exclude={"min_parts", "source_ids", *(() if packed else ("file_bytes", "pad_id"))}
        )
        text = json.dumps([expected, decides], sort_keys=True)
        expected = hashlib.sha256(text.encode()).hexdigest()
    assert tokenmill_reader.open(tmp_path, split).state()["data"] == expected
    assert own_digest(json.loads((tmp_path / "manifest.json").read_text())) == whole.digest


@pytest.mark.parametrize("folder", [MADE_BY_0_1, MADE_BY_0_1.parents[1] / "made_by_format_7"], ids=["0.1", "7"])
def test_datasets_of_earlier_formats_are_described_and_checked(folder: Path) -> None:
    [manifest] = folder.rglob("manifest.json")
    assert tokenmill_reader.info(manifest.parent)["documents"] == read_manifest(manifest.parent).n_documents
    assert [line for line in tokenmill_reader.check(manifest.parent).wrong if "not named" not in line] == []
    arranged = read_manifest(manifest.parent).files
    for split in arranged.splits if arranged and arranged.splits else [None]:
        assert len(tokenmill_reader.open(manifest.parent, split)[0]) > 0
