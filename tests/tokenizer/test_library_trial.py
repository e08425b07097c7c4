"""What would end the process of the `tokenizers` library, or take gigabytes, is an error that names the file."""

import base64
import json
import os
import resource
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tokenmill import Tokenizer
from tokenmill.errors import TokenizerError
from tokenmill.storage.writable import user_caches
from tokenmill.tokenizer import library_trial

UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.5]]}
RESERVING = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(struct.pack("<I", 2**32 - 1)).decode()}
ADDED = [
    {
        "id": i,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": True,
        "special": False,
    }
    for i, text in enumerate("xy", 2)
]


def written(folder: Path, **sections: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": UNIGRAM, **sections}))
    return path


@pytest.mark.parametrize("added", [[], ADDED])
def test_a_length_that_ends_the_process_of_the_library_is_an_error(tmp_path: Path, added: list[dict[str, Any]]) -> None:
    normalizer = {"type": "Sequence", "normalizers": [{"type": "NFC"}, RESERVING]}
    path = written(tmp_path, normalizer=normalizer, added_tokens=added)
    with pytest.raises(
        TokenizerError, match=r"tokenizer\.json: the tokenizers library .* its process ended with SIGABRT"
    ):
        Tokenizer.load(path)


@pytest.mark.slow
def test_a_small_file_of_long_tokens_takes_no_gigabytes(tmp_path: Path) -> None:
    chance = Random(0)
    vocab = [["<unk>", 0.0], *([f"{chance.getrandbits(1000):0250x}", -1.0] for _ in range(40_000))]
    with pytest.raises(TokenizerError, match=r"within 60 s and 2 GB of memory"):
        Tokenizer.load(written(tmp_path, model=UNIGRAM | {"vocab": vocab}))


def test_a_file_is_tried_once_by_all_processes_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    path = written(tmp_path, normalizer={"type": "NFKC"})
    assert Tokenizer.load(path).engine == "tokenizers"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for marked in ("by this process", "by another one"):
        Tokenizer.load(path)
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt == before.ru_minflt, marked
        library_trial._read.clear()
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")  # nothing is remembered there
    Tokenizer.load(path)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt > before.ru_minflt


@pytest.mark.parametrize(
    "what", ["owner", "mode", "owner behind a link", "owner of a link", "owner of the folder in it"]
)
def test_what_others_may_have_written_into_a_folder_of_caches_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    caches = tmp_path / "caches"
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
    library_trial._read.clear()
    Tokenizer.load(written(tmp_path, normalizer={"type": "NFKC"}))
    assert user_caches() == caches and any((caches / "tokenmill").rglob("*"))
    if "link" in what:
        caches.rename(tmp_path / "other")
        caches.symlink_to(tmp_path / "other")
        assert user_caches() == caches
    if what == "mode":
        caches.chmod(0o777)
    elif os.geteuid():
        pytest.skip("root alone may give folders away")
    else:
        given = caches / "tokenmill" if what == "owner of the folder in it" else caches
        os.chown(given, 1000, 1000, follow_symlinks=what != "owner of a link")
    assert user_caches() is None
    library_trial._read.clear()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    Tokenizer.load(tmp_path / "tokenizer.json")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt > before
