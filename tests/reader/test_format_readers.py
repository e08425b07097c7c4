"""Each format has the names of the tools and loaders that read it, in one table."""

from pathlib import Path

from tests.builders.document_sets import documents_dataset, shape_of, write_dataset, write_set
from tokenmill.config.encode_params import Pack
from tokenmill.format_facts import FORMATS
from tokenmill_reader.description import LOADERS, READERS, info, lines_of

OPENED = "through tokenmill.open: PyTorch, torchdata, Grain, LitGPT"


def test_the_table_has_every_format() -> None:
    assert list(READERS) == list(FORMATS)


def test_info_has_a_line_for_each_format_with_what_reads_it(tmp_path: Path) -> None:
    folder = documents_dataset(tmp_path, [[[1, 2], [3]]], ["olmo", "mds"])
    lines = [" ".join(line.split()) for line in lines_of(info(folder))]
    assert [line for line in lines if " suits " in line] == [
        f"olmo suits OLMo-core, dolma; {OPENED}",
        "mds suits MosaicML Streaming, LLM Foundry",
        f"parquet suits datasets, polars, pyarrow; {OPENED}",
    ]


def test_trainers_that_need_labels_read_files_that_have_some(tmp_path: Path) -> None:
    for labels in (False, True):
        folder = tmp_path / str(labels)
        shape, items = shape_of(60_000, 2, labels), [[[1, 2]]]
        one = write_set(folder, "arrow", items, shape, starts=[[[0]]], labels=items if labels else None)
        write_dataset(folder, [], [one], 60_000, pack=Pack(length=2, mode="best_fit", labels=labels))
        [found] = info(folder)["read_by"]
        assert found["format"] == "arrow" and found["loaders"] == list(LOADERS)
        assert found["tools"] == ["datasets", "pyarrow", *(READERS["arrow"].of_labels if labels else ())]
