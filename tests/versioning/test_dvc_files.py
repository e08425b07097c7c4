"""DVC says what it cannot list, open or write, instead of passing over it or waiting for ever."""

import errno
import hashlib
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import diskcache
import pytest
from dvc_data.hashfile.build import build

from tests.builders.damage import cached
from tests.conftest import Project
from tokenmill.storage.links import has_clones
from tokenmill.versioning.dvc_files import Known
from tokenmill.versioning.dvc_patches import patched
from tokenmill.versioning.dvc_repository import repository
from tokenmill.versioning.dvc_stage import opened


def test_a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(project: Project) -> None:
    with repository(project.root) as repo, pytest.raises(FileNotFoundError):
        list(repo.dvcignore.walk(repo.fs, str(project.root / "data/gone")))


def test_what_is_no_file_is_not_read(project: Project) -> None:
    os.mkfifo(project.root / "data/raw/fifo")
    with repository(project.root) as repo:
        stage = repo.stage.load_one(path=str(project.root / "dvc.yaml"), name="count")
        [documents] = [dep for dep in stage.deps if dep.fs_path == str(project.root / "data/raw")]
        with pytest.raises(OSError, match="it is a FIFO"):
            documents.get_hash()


@pytest.mark.parametrize("n_checked", [3, 2])
def test_a_folder_is_listed_again_unless_all_of_its_files_are_checked(project: Project, n_checked: int) -> None:
    documents = project.root / "data/raw"
    (documents / "b.jsonl").write_bytes(b"{}\n")
    (documents / "c.jsonl").write_bytes(b"{}\n")
    key, known = ("_build", str(documents), str(documents), "md5"), Known()
    with opened(project.root, "count", known) as stage:
        with stage.recording({str(documents / name) for name in ("a.jsonl", "b.jsonl", "c.jsonl")[:n_checked]}):
            found = known[key]
            (project.root / "data/counts").mkdir()
            (project.root / "data/counts/counts.parquet").touch()
        assert (known[key] is found) == (n_checked == 3)


def test_the_md5_that_dvc_records_are_those_of_hashlib(project: Project) -> None:
    folder = project.root / "data/raw"
    for i, n_bytes in enumerate((0, 1, 63, 64, 65, 3 << 20, (3 << 20) + 1)):
        (folder / f"{i}.txt").write_bytes(os.urandom(n_bytes))
    with repository(project.root) as repo:
        tree: Any = build(repo.cache.local, str(folder), repo.fs, "md5", dry_run=True, checksum_jobs=2)[2]
        found = {"/".join(key): info.value for key, _, info in tree}
    assert found == {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_links_to_the_cache_are_made_where_they_can_be(project: Project) -> None:
    """DVC links files between two file systems only when they are of one class."""
    with repository(project.root) as repo:
        assert type(repo.fs) is type(repo.cache.local.fs)


@pytest.mark.parametrize("n_jobs", [None, 3])
def test_dvc_takes_all_cores_or_as_many_as_its_configuration_says(project: Project, n_jobs: int | None) -> None:
    if n_jobs:
        project.dvc("config", "core.checksum_jobs", str(n_jobs))
    with repository(project.root) as repo:
        assert repo.fs.hash_jobs == (n_jobs or len(os.sched_getaffinity(0)))


def test_no_empty_file_is_made_for_a_clone_where_there_are_none(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC's own stays when it cannot be removed, and is then taken for the clone."""
    if has_clones(project.root):
        pytest.skip("this file system has clones")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    source, target = project.root / "params.yaml", project.root / "data/clone"
    with repository(project.root) as repo, monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        for files in (repo.fs, repo.cache.local.fs):
            with pytest.raises(OSError) as raised:
                files.reflink(str(source), str(target))
            assert raised.value.errno == errno.ENOTSUP  # after which DVC links or copies
            assert not target.exists()


@pytest.mark.parametrize("name", ["data/tokens/documents/a.jsonl.parquet", "data/counts/counts.parquet"])
def test_an_empty_file_that_a_killed_build_left_in_the_cache_is_not_taken_for_an_output(
    project: Project, name: str
) -> None:
    """DVC makes a clone from an empty file of its name, which stays when it is killed just then."""
    project.build()
    before = project.outputs()
    in_cache = cached(project, name)
    in_cache.unlink()
    in_cache.touch(0o644)
    shutil.rmtree(project.root / "data" / name.split("/")[1])
    (project.root / "dvc.lock").unlink()
    project.build()
    assert project.outputs() == before
    assert in_cache.read_bytes() == (project.root / name).read_bytes()


def test_a_database_that_cannot_be_written_to_is_not_tried_for_ever(tmp_path: Path) -> None:
    with patched(), diskcache.Cache(str(tmp_path), timeout=0) as cache:
        other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(diskcache.Timeout):
            cache.set("a", 1, retry=True)
        other.close()


def test_patches_end_with_the_block_also_with_the_inner_one_of_two() -> None:
    from dvc.progress import Tqdm

    transact = vars(diskcache.Cache)["_transact"]
    with pytest.raises(ZeroDivisionError), patched():
        assert vars(diskcache.Cache)["_transact"] is not transact
        with patched():
            assert vars(Tqdm)["postfix"] == {}
        assert vars(Tqdm)["postfix"] == {}
        raise ZeroDivisionError
    assert vars(diskcache.Cache)["_transact"] is transact
    assert "postfix" not in vars(Tqdm)
