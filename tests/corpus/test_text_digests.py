"""The digest of each text is that of hashlib, and the count of each id that of numpy."""

import hashlib
import random

import numpy as np
import pyarrow as pa
import pytest

from tokenmill import _core
from tokenmill.corpus.text_digests import text_digests


def test_the_digest_of_each_text_is_its_sha256() -> None:
    draw = random.Random(0)
    texts = ["", "é", *("".join(draw.choices("aé磨 ", k=n)) for n in [*range(1, 140), 5_000, 100_000])]
    array = pa.array(texts, pa.large_string())
    expected = [hashlib.sha256(text.encode()).digest() for text in texts]
    assert text_digests(array).to_pylist() == expected
    assert text_digests(array[3:70]).to_pylist() == expected[3:70]
    assert text_digests(array[:0]).type == pa.binary(32)


def test_a_null_has_the_digest_of_the_empty_text() -> None:
    found = text_digests(pa.array(["a", None], pa.large_string())[1:])
    assert (found.null_count, found[0].as_py()) == (0, hashlib.sha256().digest())


@pytest.mark.parametrize("kind", [pa.uint16(), pa.uint32()])
def test_ids_are_counted_unless_one_is_too_large(kind: pa.DataType) -> None:
    ids = np.random.default_rng(0).integers(0, 300, 5_000)
    array = pa.array(ids, kind)
    counts = _core.count_ids(array, 300)
    assert counts is not None and counts.equals(pa.array(np.bincount(ids, minlength=301)))
    some = _core.count_ids(array[7:9], 400)
    assert some is not None and some.equals(pa.array(np.bincount(ids[7:9], minlength=401)))
    assert _core.count_ids(array, int(ids.max()) - 1) is None
    assert _core.count_ids(array[:0], 1).to_pylist() == [0, 0]  # type: ignore[union-attr]
