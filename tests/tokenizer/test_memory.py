"""A tokenizer that nobody holds is freed without the garbage collector, with the core's tables."""

import gc
import json
import weakref
from pathlib import Path

import pytest

from tests.builders.tokenizer_files import DOCUMENT
from tokenmill import Tokenizer


@pytest.mark.parametrize(
    "document", [DOCUMENT, {**DOCUMENT, "normalizer": {"type": "NFKC"}}], ids=["core", "tokenizers"]
)
def test_a_tokenizer_is_freed_when_its_last_name_is_gone(tmp_path: Path, document: object) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    gc.disable()
    try:
        tokenizer = Tokenizer.load(tmp_path)
        assert tokenizer.encode("the cat") == tokenizer.encode("the cat", special="allow")
        assert len(tokenizer.digest) == 64
        held = weakref.ref(tokenizer)
        del tokenizer
        assert held() is None
    finally:
        gc.enable()
