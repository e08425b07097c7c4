"""The digest of a file's tokens says which documents it holds, and nothing of how they are written."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.conversation_sets import TOKENIZER
from tokenmill.dataset.entries import InputRows, OutputShard
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tokens_digest import TokensDigest
from tokenmill.formats.parquet import read_tokens, write_tokens
from tokenmill.formats.tokens import schema
from tokenmill_reader.manifest import tokens_digest


def rows_of(lists: Sequence[Sequence[int]], masks: Sequence[Sequence[int]] | None = None) -> pa.RecordBatch:
    shape = schema(pa.uint16(), has_names=False, has_mask=masks is not None)
    columns = [range(len(lists)), lists, [1] * len(lists)]
    if masks is not None:
        columns += [masks, [b"d" * 32] * len(lists)]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, shape, strict=True)], schema=shape)


def digest_of(*batches: pa.RecordBatch) -> str:
    digest = TokensDigest()
    for batch in batches:
        digest.add(batch)
    return digest.hex()


def by_hand(*columns: np.ndarray) -> str:
    return sha256("".join(f"\n{sha256(one.tobytes()).hexdigest()}" for one in columns).encode()).hexdigest()


def test_a_digest_is_of_lengths_ids_and_masks() -> None:
    lengths, ids, masks = np.array([2, 0, 1], "<i8"), np.array([7, 258, 9], "<u2"), np.array([0, 1, 1], "i1")
    assert digest_of(rows_of([[7, 258], [], [9]])) == by_hand(lengths, ids)
    assert digest_of(rows_of([[7, 258], [], [9]], [[0, 1], [], [1]])) == by_hand(lengths, ids, masks)


@given(st.lists(st.lists(st.integers(0, 2), max_size=3), min_size=1, max_size=5), st.integers(0, 5))
def test_batches_and_slices_have_the_digest_of_the_whole(lists: list[list[int]], at: int) -> None:
    whole = rows_of(lists)
    assert digest_of(whole.slice(0, at), whole.slice(at)) == digest_of(whole)


def test_a_batch_without_documents_decides_nothing() -> None:
    """A file of conversations that are all left out has such a batch when it is written, and none when it is read."""
    assert digest_of(rows_of([], [])) == digest_of()
    assert digest_of(rows_of([], []), rows_of([[1]], [[0]])) == digest_of(rows_of([[1]], [[0]]))


def test_documents_that_differ_have_other_digests() -> None:
    found = [digest_of(rows_of(lists)) for lists in ([], [[]], [[], []], [[1], [2]], [[1, 2]], [[], [1, 2]], [[2, 1]])]
    found += [digest_of(rows_of([[1, 2]], [masks])) for masks in ([0, 1], [1, 0])]
    assert len(set(found)) == len(found)


def test_a_file_of_another_writer_has_the_same_digest(tmp_path: Path) -> None:
    rows = rows_of([[1, 2], [], [3]])
    with write_tokens(tmp_path / "a.parquet", rows.schema) as write:
        write(rows)
    pq.write_table(pa.Table.from_batches([rows]), tmp_path / "b.parquet", compression="none", row_group_size=1)
    assert (tmp_path / "a.parquet").read_bytes() != (tmp_path / "b.parquet").read_bytes()
    expected = digest_of(rows)
    assert [digest_of(*read_tokens(tmp_path / f"{name}.parquet")) for name in "ab"] == [expected, expected]


def manifest_of(version: int, sha256: str, tokens_sha256: str | None) -> Manifest:
    sums = {"n_documents": 1, "n_tokens": 2, "text_bytes": 3}
    rows = [InputRows(name="a", first_row=0, first_line=1, n_documents=1, n_bad=0)]
    return Manifest(
        format_version=version,
        engine="by hand",
        tokenizer_digest=TOKENIZER.digest,
        params_digest="8" * 64,
        id_type="uint16",
        id_max=3,
        end_of_document_id=None,
        special_tokens_in_text="as_text",
        n_bad=0,
        quarantine_sha256="9" * 64,
        inputs=[],
        shards=[
            OutputShard(
                name="documents/a.parquet",
                unit="u",
                n_bytes=1,
                sha256=sha256,
                rows=rows,
                tokens_sha256=tokens_sha256,
                **sums,
            )
        ],
        **sums,
    )


def test_orders_come_from_tokens_and_up_to_format_8_from_the_bytes_of_files() -> None:
    found = manifest_of(9, "f", "t").tokens_digest()
    assert found == manifest_of(9, "other", "t").tokens_digest() != manifest_of(9, "f", "other").tokens_digest()
    assert found == tokens_digest(TOKENIZER.digest, [("a.parquet", "t")])
    lines = f"tokens 1 {TOKENIZER.digest}\nf a.parquet"
    assert manifest_of(8, "f", None).tokens_digest() == sha256(lines.encode()).hexdigest()
