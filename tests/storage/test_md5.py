"""MD5 of many files side by side equals hashlib's, and DVC goes by it."""

import hashlib
import random
import threading
from pathlib import Path

import pytest
from dvc_data.hashfile.build import build
from dvc_data.hashfile.db import HashFileDB
from dvc_objects.fs.local import localfs

from tokenmill import _core
from tokenmill.storage import md5
from tokenmill.storage.md5 import md5_of_files
from tokenmill.versioning import dvc_files


def write(folder: Path, lengths: list[int]) -> dict[str, str]:
    random.seed(1)
    expected = {}
    for i, n_bytes in enumerate(lengths):
        path = folder / f"{i:04}"
        path.write_bytes(random.randbytes(n_bytes))
        expected[str(path)] = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    return expected


@pytest.mark.parametrize("threads", [1, 3])
def test_the_digests_are_those_of_hashlib(tmp_path: Path, threads: int) -> None:
    read = md5._READ_BYTES
    around = [n * read + d for n in (1, 2, 5) for d in (-65, -64, -9, -8, -1, 0, 1, 55, 56, 64)]
    expected = write(tmp_path, [*range(200), *around])
    found = md5_of_files(list(expected), threads)
    assert len(found) == len(expected)
    assert dict(found) == expected


def test_no_file_is_no_digest() -> None:
    assert md5_of_files([], 2) == []


def test_an_error_names_the_file(tmp_path: Path) -> None:
    expected = write(tmp_path, [1000] * 40)
    missing = tmp_path / "0039"
    missing.unlink()
    with pytest.raises(FileNotFoundError) as raised:
        md5_of_files(list(expected), 2)
    assert raised.value.filename == str(missing)


def test_an_error_ends_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(md5, "_READ_BYTES", 64)
    expected = write(tmp_path, [1 << 20] * 4)
    with pytest.raises(FileNotFoundError):
        md5_of_files([*expected, str(tmp_path / "gone")], 5)
    read: list[str] = []
    chunk = md5._Message.chunk

    def noted(message: md5._Message) -> bytes:
        read.append(message.path)
        return chunk(message)

    monkeypatch.setattr(md5._Message, "chunk", noted)
    with pytest.raises(FileNotFoundError):
        md5_of_files([str(tmp_path / "gone"), *expected], 5)
    assert len(read) < 4 * (1 << 20) // 64


def test_files_are_shared_out_among_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write(tmp_path, [1 << 21] * 8)
    threads = set()
    chunk = md5._Message.chunk

    def noted(message: md5._Message) -> bytes:
        threads.add(threading.get_ident())
        return chunk(message)

    monkeypatch.setattr(md5._Message, "chunk", noted)
    assert dict(md5_of_files(list(expected), 2)) == expected
    assert len(threads) == 2


def test_blocks_and_states_have_to_fit() -> None:
    for states, chunks in ((bytes(16), []), (bytes(15), [bytes(64)]), (bytes(16), [bytes(63)])):
        with pytest.raises(ValueError, match="md5_blocks: found"):
            _core.md5_blocks(states, chunks)


@pytest.mark.parametrize(
    ("lengths", "n_beside"),
    [([3000] * 12, 12), ([0] * 9, 9), ([3000] * 12 + [1 << 22], 12), ([1 << 22] * 7, 0), ([1 << 22, 1, 1], 0)],
)
def test_dvc_finds_what_it_finds_by_itself(
    tmp_path: Path, lengths: list[int], n_beside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dvc_files.make_fast()
    asked: list[str] = []

    def listed(paths: list[str], threads: int) -> list[tuple[str, str]]:
        asked.extend(paths)
        return md5_of_files(paths, threads)

    monkeypatch.setattr(dvc_files, "md5_of_files", listed)
    folder = tmp_path / "files"
    folder.mkdir()
    expected = write(folder, lengths)
    _, _, tree = build(
        HashFileDB(localfs, str(tmp_path / "store")), str(folder), localfs, "md5", dry_run=True, checksum_jobs=2
    )
    found = {str(folder.joinpath(*key)): (info.value, meta.size) for key, meta, info in tree}
    assert found == {path: (digest, Path(path).stat().st_size) for path, digest in expected.items()}
    assert len(asked) == n_beside
