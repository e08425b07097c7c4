import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

from tokenmill.config.sources import Reading
from tokenmill.corpus.reader import Batch, find_shards, read_batches

ROOT = Path(__file__).parent.parent


def sample(directory: Path, hash_seed: str = "0") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tokenmill.corpus.sample", directory],
        check=True, capture_output=True, text=True, cwd=ROOT, env={"PYTHONHASHSEED": hash_seed},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def tree(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sample") / "raw"
    assert sample(directory).count("\n") == 1
    return directory


def batches(directory: Path, glob: str) -> list[Batch]:
    return [
        batch for shard in find_shards(directory, glob) for batch in read_batches(shard, Reading("text", "id", None))
    ]


@pytest.mark.slow
def test_the_sample_is_ten_megabytes_and_more_in_five_shards(made: Path) -> None:
    assert sorted(tree(made)) == [
        *(f"code/code-{k}.parquet" for k in range(3)),
        *(f"prose/prose-{k}.jsonl.zst" for k in range(2)),
    ]
    assert 10_000_000 < sum(batch.text_bytes for batch in batches(made, "**/*")) < 60_000_000


@pytest.mark.slow
def test_the_same_environment_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    sample(tmp_path, hash_seed="1")
    assert tree(tmp_path) == tree(made)


def test_a_directory_with_a_shard_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "mine.txt").write_text("mine")
    assert "nothing made" in sample(tmp_path)
    assert list(tree(tmp_path)) == ["deep/mine.txt"]


@pytest.mark.slow
def test_other_files_do_not_keep_the_sample_from_being_made(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").touch()
    sample(tmp_path)
    assert len(tree(tmp_path)) == 6


def test_ids_are_unique_and_name_where_a_document_is_from(made: Path) -> None:
    code = [name for batch in batches(made, "code/*") for name in batch.ids.to_pylist()]
    prose = [name for batch in batches(made, "prose/*") for name in batch.ids.to_pylist()]
    assert len(set(code + prose)) == len(code + prose)
    assert "json/decoder.py" in code and "python/assert" in prose and "pyarrow/description" in prose
    assert not [name for name in code if "test" in name.split("/") or "site-packages" in name]
    assert not [name for name in prose if name.startswith("tokenmill/") or "license" in name.rsplit("/", 1)[-1].lower()]


def test_code_is_the_standard_library_to_the_byte(made: Path) -> None:
    import json.decoder

    for batch in batches(made, "code/*"):
        index = pc.index(batch.ids, "json/decoder.py").as_py()
        if index >= 0:
            assert batch.texts[index].as_py().encode() == Path(json.decoder.__file__).read_bytes()
            return
    pytest.fail("json/decoder.py is not in the sample")
