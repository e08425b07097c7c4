"""The sample of documents that the report measures."""

import pytest

from tests.conftest import Project
from tokenmill.config.load_params import load_params
from tokenmill.corpus.dropped import none_dropped
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.corpus.reader import find_shards
from tokenmill.corpus.units import Unit, cut
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.report.sample import TEXT_BYTES_MAX, draw_documents
from tokenmill.storage.file_facts import Digests


def units_of(project: Project) -> list[Unit]:
    [source] = load_params(project.root / "params.yaml").document_sources()
    shards = find_shards(project.root, "data/raw/**/*", source=source)
    return list(cut(shards, Digests(project.root, trust=False), 0, 10_000, 1).units)


def test_a_file_that_cannot_be_read_now_is_an_error_and_not_left_out(project: Project) -> None:
    units = units_of(project)
    assert draw_documents(units, None, UNBOUNDED, none_dropped()).n_files == len(units)
    (project.root / "data/raw/b.jsonl").rename(project.root / "away")
    with pytest.raises(CorpusError, match=r"b\.jsonl: .*cannot be read: No such file or directory"):
        draw_documents(units, None, UNBOUNDED, none_dropped())


def test_a_file_without_the_column_of_languages_is_left_out(project: Project) -> None:
    project.write("c.txt", ["a text"])
    line = '{"id": "x", "text": "ein Satz", "lang": "de"}\n'
    (project.root / "data/raw/d.jsonl").write_text(line, encoding="utf-8")
    found = draw_documents(units_of(project), "lang", UNBOUNDED, none_dropped())
    assert "ein Satz" in found.texts.to_pylist()
    for name, why in (("nothing", ""), ("text", "'text' is the column of the documents")):
        with pytest.raises(ParamsError, match=rf"validate.language_column: '{name}' was found in no file .*{why}"):
            draw_documents(units_of(project), name, UNBOUNDED, none_dropped())


@pytest.mark.parametrize("n_words", [1, 60, 30_000])
def test_the_sample_is_2_mib_whatever_the_lengths_of_documents_and_however_small_other_files_are(
    project: Project, n_words: int
) -> None:
    (project.root / "data/raw/b.jsonl").unlink()
    text = "text " * n_words
    project.write("a.jsonl", [text] * (3_000_000 // len(text)))
    for i in range(8):
        project.write(f"tiny-{i}.jsonl", ["tiny"])
    [source] = load_params(project.root / "params.yaml").document_sources()
    shards = find_shards(project.root, "data/raw/**/*", source=source)
    units = cut(shards, Digests(project.root, trust=False), 0, 1 << 30, 1).units
    drawn = draw_documents(units, None, UNBOUNDED, none_dropped())
    assert drawn.n_files == 9
    assert TEXT_BYTES_MAX - len(text) <= drawn.n_bytes <= TEXT_BYTES_MAX + len(text)
