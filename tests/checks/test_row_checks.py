"""Documents and rows of the dataset are paired in order, and an error names the input file."""

import pyarrow as pa
import pytest

from tokenmill.checks.spans import aligned
from tokenmill.errors import ValidationError


def test_rows_of_an_input_file_without_documents_are_told_with_its_name() -> None:
    rows = pa.record_batch({"id": ["a"]})
    with pytest.raises(ValidationError, match=r"^empty\.jsonl: row 0: the dataset holds 1 rows more"):
        list(aligned([], ["empty.jsonl"], iter([rows])))
