"""Pairs in the columns of TRL, written and read again."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.builders.format_readers import READERS
from tokenmill.errors import ValidationError
from tokenmill.formats.trl_dpo import TRL_DPO
from tokenmill_reader.formats.columns import schema_of
from tokenmill_reader.formats.items import Shape

PAIRS = [([1, 2, 3], [4, 5], [6]), ([7], [8], [9, 9, 9])]


def shape(id_max: int) -> Shape:
    documents = Shape(id_max, "0123abcd", None, None, has_names=True, has_mask=True, is_pair=True)
    return documents.packed(5, has_labels=False)


def rows(id_max: int) -> pa.RecordBatch:
    found = [
        {
            "input_ids": [*prompt, *chosen, *prompt, *rejected],
            "starts": [0, len(prompt + chosen)],
            "loss_mask": [0] * len(prompt) + [1] * len(chosen) + [0] * len(prompt) + [1] * len(rejected),
        }
        for prompt, chosen, rejected in PAIRS
    ]
    return pa.RecordBatch.from_pylist(found, schema=schema_of(shape(id_max)))


@pytest.mark.parametrize("id_max", [2**16 - 1, 200_000])
def test_pairs_become_prompts_and_answers_and_again_pairs(id_max: int, tmp_path: Path) -> None:
    whole = rows(id_max)
    for stem, batches in (("a", [whole]), ("b", [whole.slice(0, 1), whole.slice(1)])):
        with TRL_DPO.write(tmp_path, stem, shape(id_max)) as add:
            for batch in batches:
                add(batch)
    found = READERS["trl_dpo"](tmp_path, "a", "u2", True)
    assert [tuple(row[name] for name in ("prompt_ids", "chosen_ids", "rejected_ids")) for row in found] == PAIRS
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()
    (read,) = TRL_DPO.read(tmp_path, "a", shape(id_max))
    assert read.equals(whole)


def test_a_side_that_is_too_long_is_no_pair(tmp_path: Path) -> None:
    with TRL_DPO.write(tmp_path, "a", shape(9)) as add:
        add(rows(9))
    documents = Shape(9, "0123abcd", None, None, has_names=True, has_mask=True, is_pair=True)
    with pytest.raises(ValidationError, match="expected a sequence of 1 to 8 tokens; found 9"):
        list(TRL_DPO.read(tmp_path, "a", documents.packed(4, has_labels=False)))
