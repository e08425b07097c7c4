"""The unit store gives a finished unit back unchanged, or not at all."""

import hashlib
import os
from pathlib import Path

import pytest

from tokenmill.storage import unit_store
from tokenmill.storage.atomic import make_folder
from tokenmill.storage.links import link
from tokenmill.storage.unit_store import UnitStore, unit_key


def put(store: UnitStore, key: str, content: bytes = b"bytes") -> Path:
    with store.new(key) as partial:
        (partial / "f").write_bytes(content)
        return store.keep(key, partial, len(content)).folder


def test_a_unit_is_found_with_its_facts(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    key = unit_key(a=1)
    assert store.find(key, int) is None
    assert store.keys() == set()
    folder = put(store, key)
    found = store.find(key, int)
    assert found is not None
    assert (found.folder, found.facts) == (folder, 5)
    assert {name: (file.sha256, file.n_bytes) for name, file in found.files.items()} == {
        "f": (hashlib.sha256(b"bytes").hexdigest(), 5)
    }
    assert store.keys() == {key}
    assert (folder / "f").stat().st_mode & 0o777 == 0o444


def test_a_unit_that_was_not_kept_leaves_nothing(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    with pytest.raises(RuntimeError), store.new(unit_key(a=1)) as partial:
        (partial / "f").write_bytes(b"half")
        raise RuntimeError
    assert not [path for path in (tmp_path / ".tokenmill").rglob("*") if path.is_file()]


def test_a_unit_that_is_made_again_stays_as_it_is(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    key = unit_key(a=1)
    put(store, key)
    with store.new(key) as partial:
        (partial / "f").write_bytes(b"bytes")
        again = store.keep(key, partial, 5)
    assert again == store.find(key, int)


@pytest.mark.parametrize("name", ["f", "facts.json"])
def test_a_damaged_unit_is_not_found_and_can_be_made_again(tmp_path: Path, name: str) -> None:
    store = UnitStore(tmp_path)
    key = unit_key(a=1)
    path = put(store, key) / name
    path.chmod(0o644)
    path.write_bytes(b"BYTES" if name == "f" else b"{")
    assert store.find(key, int) is None
    put(store, key)
    assert store.find(key, int) is not None


def test_rehash_finds_what_the_times_hide(tmp_path: Path) -> None:
    key = unit_key(a=1)
    path = put(UnitStore(tmp_path), key) / "f"
    status = path.stat()
    path.chmod(0o644)
    path.write_bytes(b"BYTES")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert UnitStore(tmp_path).find(key, int) is not None
    assert UnitStore(tmp_path, trust=False).find(key, int) is None


def test_a_unit_made_again_with_the_same_bytes_stays_the_same_files(tmp_path: Path) -> None:
    store, key = UnitStore(tmp_path), unit_key(a=1)
    path = put(store, key, b"bytes") / "f"
    link(path, tmp_path / "output")
    inode = path.stat().st_ino
    assert put(store, key, b"bytes") == path.parent
    assert path.stat().st_ino == inode
    put(store, key, b"other")
    assert (path.read_bytes(), (tmp_path / "output").read_bytes()) == (b"other", b"bytes")
    path.chmod(0o644)
    path.write_bytes(b"wrong")
    put(store, key, b"other")
    assert path.read_bytes() == b"other"


def test_two_workers_that_keep_the_same_unit_at_the_same_time_have_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = unit_key(a=1)
    first: list[int] = []

    def other_is_first(folder: Path) -> None:
        monkeypatch.undo()
        make_folder(folder)
        other = put(UnitStore(tmp_path / "other"), key)
        first.append((other / "f").stat().st_ino)
        other.rename(folder / key)

    monkeypatch.setattr(unit_store, "make_folder", other_is_first)
    with UnitStore(tmp_path).new(key) as partial:
        (partial / "f").write_bytes(b"bytes")
        done = UnitStore(tmp_path).keep(key, partial, 5)
    assert [done.files["f"].inode] == first == [(done.folder / "f").stat().st_ino]


def test_a_copied_store_is_read_once_and_trusted_then(tmp_path: Path) -> None:
    key = unit_key(a=1)
    path = put(UnitStore(tmp_path), key) / "f"
    path.rename(tmp_path / "old")
    path.write_bytes(b"bytes")
    before = (path.parent / "facts.json").read_bytes()
    assert UnitStore(tmp_path).find(key, int) is not None
    after = (path.parent / "facts.json").read_bytes()
    assert before != after
    assert UnitStore(tmp_path).find(key, int) is not None
    assert (path.parent / "facts.json").read_bytes() == after


def test_a_unit_of_a_copied_store_can_be_made_again_and_was_used_then(tmp_path: Path) -> None:
    key = unit_key(a=1)
    path = put(UnitStore(tmp_path), key) / "f"
    path.rename(tmp_path / "old")
    path.write_bytes(b"bytes")
    inode = path.stat().st_ino
    os.utime(path.parent, (1, 1))
    put(UnitStore(tmp_path), key)
    assert path.stat().st_ino == inode
    assert path.parent.stat().st_mtime > 1


def test_the_units_used_longest_ago_go_first_and_shared_bytes_are_free(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    keys = [unit_key(i=i) for i in range(4)]
    for i, key in enumerate(keys):
        os.utime(put(store, key, bytes(10_000)), (i, i))
    store.find(keys[0], int)
    link(store.find(keys[1], int).folder / "f", tmp_path / "output")  # type: ignore[union-attr]
    os.utime(tmp_path / f".tokenmill/units/{keys[1][:2]}/{keys[1]}", (9, 9))
    store.clean(25_000)
    assert [store.find(key, int) is not None for key in keys] == [True, True, False, True]
    store.clean(0)
    assert (tmp_path / "output").read_bytes() == bytes(10_000)


def test_a_key_follows_from_values_not_from_their_order() -> None:
    assert unit_key(a=1, b={"x": 1, "y": 2}) == unit_key(b={"y": 2, "x": 1}, a=1)
    assert unit_key(a=1) != unit_key(a="1")
