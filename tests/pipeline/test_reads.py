"""How often a build reads the bytes of its documents."""

import re
from pathlib import Path

import pytest

from tests.conftest import Project
from tokenmill.storage import file_facts


def bytes_read() -> int:
    """The bytes that this process has read from files so far."""
    return int(re.findall(r"rchar: (\d+)", Path("/proc/self/io").read_text(encoding="ascii"))[0])


@pytest.mark.slow
@pytest.mark.parametrize("n_files", [1, 4])
def test_a_build_reads_each_byte_of_new_documents_four_times(
    project: Project, n_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all digests at once, to count, to encode and to check. What is made of these documents is small beside them."""
    monkeypatch.setattr(file_facts, "_RACY_NS", 0)  # the documents are as old as the test
    project.build()  # so that all modules are loaded
    made = [project.write(f"large-{i}.jsonl", ["a " * 50_000] * (320 // n_files)) for i in range(n_files)]
    n_bytes = sum(path.stat().st_size for path in made)
    before = bytes_read()
    project.build()
    assert 4 <= (bytes_read() - before) / n_bytes < 4.7
