"""Documents and rows of the dataset are paired in order, and an error names the input file, or the engine that is to blame."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.builders.tokenizer_files import DOCUMENT, loaded
from tokenmill.artifacts.golden import sample_engines, write_golden
from tokenmill.artifacts.golden_making import make_golden
from tokenmill.checks.row_checks import Judge, check_sample
from tokenmill.checks.spans import Span, aligned
from tokenmill.corpus.reader import Batch
from tokenmill.errors import ValidationError
from tokenmill.formats.tokens import id_type, rows, schema


def test_rows_of_an_input_file_without_documents_are_told_with_its_name() -> None:
    batch = pa.record_batch({"id": ["a"]})
    with pytest.raises(ValidationError, match=r"^empty\.jsonl: row 0: the dataset holds 1 row more"):
        list(aligned([], ["empty.jsonl"], iter([batch])))


def test_an_engine_that_merges_by_another_rule_is_blamed_and_not_the_document(tmp_path: Path) -> None:
    model, first = DOCUMENT["model"], len(DOCUMENT["model"]["vocab"])
    vocab = model["vocab"] | {"zq": first + 1, "qz": first}  # tiktoken merges the one of the lower id first
    merges = [*model["merges"], ["z", "q"], ["q", "z"]]
    tokenizer = loaded(tmp_path, {**DOCUMENT, "model": {**model, "vocab": vocab, "merges": merges}})
    tokenizer.save(tmp_path)
    write_golden(make_golden(tmp_path, tokenizer, {}), tmp_path)
    engines = sample_engines(tmp_path, tokenizer, special_in_text=False)
    assert [*engines] == ["tokenizers", "tiktoken"]
    judge = Judge(tokenizer, None, None, False, True, engines)
    for text, is_same in (("the cat", True), ("zqz", False)):
        batch = Batch(0, pa.array([text], pa.large_string()), pa.array(["a"], pa.large_string()))
        shape = schema(id_type(tokenizer.id_max), has_names=True, has_mask=False)
        span = Span(["a.jsonl"], 0, batch, rows(batch, tokenizer.encode_batch([text]), shape))
        if is_same:
            assert check_sample(span, judge, {0}) == 1
            continue
        with pytest.raises(
            ValidationError, match=r"a\.jsonl: row 0: tiktoken gives other ids .* The document is right"
        ):
            check_sample(span, judge, {0})
