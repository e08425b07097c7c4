"""Filters of other packages leave documents out like those of tokenmill: the example of the page of layers does."""

import re
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.builders.packages import write_dist_info
from tests.conftest import REPOSITORY, Project
from tokenmill.config.source_params import Source
from tokenmill.corpus.filter import as_key, left_out
from tokenmill.corpus.reader import Batch
from tokenmill.dataset.manifest import read_manifest, write_manifest
from tokenmill.errors import ParamsError, UsageError
from tokenmill.features.drop.filter.drop_list import DropLine, DropList
from tokenmill.filters import asked_filters, filters_of
from tokenmill.layout import LOCK_FILE, STAGES
from tokenmill.pipeline.code_pins import code_changes


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Python searches, with the package of the page of layers as it is installed."""
    page = (REPOSITORY / "docs/design/layers.md").read_text(encoding="utf-8")
    [entry] = re.findall(r"^shouting = .shouting.filter:Shouting.$", page, flags=re.MULTILINE)
    [_, module] = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    folder = tmp_path / "site"
    (folder / "shouting").mkdir(parents=True)
    (folder / "shouting/filter.py").write_text(module, encoding="utf-8")
    _register(folder, entry.replace('"', ""))
    monkeypatch.syspath_prepend(folder)
    return folder


def _register(folder: Path, *entries: str) -> None:
    write_dist_info(folder, "shouting", 7, "filters", *entries)


def test_a_filter_of_another_package_is_asked_for_by_its_name(
    site: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("c.jsonl", ["QUIET", "quiet", "Quiet, please"])
    project.set(source__filters={"shouting": 0.5}, source__min_chars=1)
    said = project.build().stderr
    words = "source.min_chars and source.filters.shouting: min_chars 1, shouting 1"
    assert f"encode: left out 2 documents by {words}" in said
    manifest = read_manifest(project.root / "data/tokens")
    assert manifest.filters == {"min_chars": 1, "shouting": 0.5}
    assert manifest.n_dropped == {"min_chars": 1, "shouting": 1}
    assert manifest.filter_packages == {"shouting": "shouting 7"}
    assert project.cli("verify").returncode == 0
    tokens = project.root / "data/tokens"
    write_manifest(manifest.model_copy(update={"filter_packages": {"shouting": "shouting 6"}}), tokens)
    done = project.cli("verify")
    assert done.returncode == 2
    assert "right documents out: expected the packages shouting 6; installed are shouting 7." in done.stdout
    write_manifest(manifest.model_copy(update={"filter_packages": {}}), tokens)  # as earlier ones
    assert project.cli("verify").returncode == 0
    monkeypatch.setattr("sys.path", [one for one in sys.path if one != str(site)])
    done = project.cli("verify")
    assert done.returncode == 2 and "not checked: whether the filters of manifest.json" in done.stdout
    assert "found 'shouting'; installed are: none" in project.cli("build", "--force").stderr


def test_name_and_version_of_the_package_join_the_keys(site: Path) -> None:
    filters = filters_of({"shouting": 0.5, "min_chars": 3})
    assert as_key(filters) == {"drop": [], "filters": {"shouting": ["shouting 7", 0.5], "min_chars": 3}}
    assert as_key({}) == {"drop": []}


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"min_chars": 3}, "source.filters: found 'min_chars', a filter of tokenmill. Set source.min_chars instead."),
        ({"drop": "drop.csv"}, "source.filters: found 'drop', a filter of tokenmill. Set source.drop instead."),
        ({"whispering": 1}, "source.filters: found 'whispering'; installed are: shouting."),
    ],
)
def test_a_filter_that_is_not_there_is_a_mistake(asked: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=re.escape(words)):
        asked_filters(tmp_path, Source(filters=asked), has_ids=True)
    with pytest.raises(ParamsError, match=re.escape(words)):
        code_changes(tmp_path, Source(filters=asked))


def test_a_package_that_cannot_be_used_is_one_error(site: Path) -> None:
    _register(site, "shouting = shouting.filter:Whispering")
    with pytest.raises(UsageError, match=r"which the package shouting adds to tokenmill\.filters, cannot be imported"):
        filters_of({"shouting": 1})
    _register(site, "min_chars = shouting.filter:Shouting")
    with pytest.raises(UsageError, match=r"adds 'min_chars' to tokenmill\.filters, a name that tokenmill has already"):
        filters_of({"shouting": 1})


def test_the_first_filter_gives_the_reason_and_bad_documents_are_none_of_theirs() -> None:
    texts, ids = pa.array(["a", None, "c"], pa.large_string()), pa.array(["x", "y", "z"], pa.large_string())
    first = DropList([DropLine("line 2", "z", None, "first")])
    second = DropList([DropLine(f"line {i}", id, None, "second") for i, id in enumerate("xyz")])
    batch = Batch(5, texts, ids)
    filters = {"one": first, "two": second}
    assert {i: left.reason for i, left in left_out(filters, "s", batch).items()} == {0: "second", 2: "first"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("return {0: Left(1 / 0, 'x')}", "ZeroDivisionError: division by zero"),
        ("return {len(batch.texts): Left('x', 'x')}", "IndexError: expected an index below 2"),
        ("return {-1: Left('x', 'x')}", "IndexError: expected an index below 2"),
        ("return {'0': Left('x', 'x')}", "TypeError"),
        ("return {0: Left(None, 'x')}", "IndexError: expected an index below 2, with a reason in words"),
        ("return {0: 'x'}", "AttributeError"),
        ("return [0]", "AttributeError"),
    ],
)
def test_a_filter_that_fails_is_one_error_that_names_its_package(site: Path, line: str, words: str) -> None:
    path = site / "shouting/filter.py"
    path.write_text(path.read_text(encoding="utf-8").replace("reasons = {}", line), encoding="utf-8")
    sys.modules.pop("shouting.filter", None)
    batch = Batch(5, pa.array(["a", "b"], pa.large_string()), None)
    expected = r"source\.filters\.shouting: this filter, of the package shouting 7, failed in a\.jsonl, rows 5 to 6: "
    with pytest.raises(ParamsError, match=expected + words):
        filters_of({"shouting": 0.5})["shouting"].left_out("a.jsonl", batch)
    sys.modules.pop("shouting.filter", None)


def test_a_machine_with_another_version_of_the_package_leaves_nothing_out(site: Path) -> None:
    batch, found = Batch(0, pa.array(["LOUD"], pa.large_string()), None), filters_of({"shouting": 0.5})["shouting"]
    assert found.left_out("a.jsonl", batch)
    shutil.rmtree(site / "shouting-7.dist-info")
    for installed in ("none", "8"):
        with pytest.raises(ParamsError, match=f"the build has shouting 7; installed on .* is {installed}"):
            found.left_out("a.jsonl", batch)
        write_dist_info(site, "shouting", 8, "filters", "shouting = shouting.filter:Shouting")


def test_documents_are_known_by_the_name_of_the_filter_and_none_has_that_of_a_column(site: Path) -> None:
    path = site / "shouting/filter.py"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"shouting", "shouting"', '"loud", "id"'), encoding="utf-8"
    )
    sys.modules.pop("shouting.filter", None)
    batch = Batch(0, pa.array(["LOUD", "quiet"], pa.large_string()), None)
    assert filters_of({"shouting": 0.5})["shouting"].left_out("a.jsonl", batch) == {0: ("loud", "shouting")}
    _register(site, "id = shouting.filter:Shouting")
    with pytest.raises(UsageError, match=r"adds 'id' to tokenmill\.filters, a name that tokenmill has already"):
        filters_of({"id": 1})
    sys.modules.pop("shouting.filter", None)


def test_another_version_of_the_package_is_told_and_judges_the_documents_again(site: Path, project: Project) -> None:
    with project.edited("dvc.yaml") as pipeline:  # as in a new project
        for stage in STAGES:
            pipeline["stages"][stage]["params"].append({LOCK_FILE: [f"code.{stage}"]})
    project.write("c.jsonl", ["QUIET", "quiet", "Quiet, please"])
    project.set(source__filters={"shouting": 0.5})
    project.build()
    assert project.cli("status").stdout.count("up to date") == 4
    shutil.rmtree(site / "shouting-7.dist-info")
    write_dist_info(site, "shouting", 8, "filters", "shouting = shouting.filter:Shouting")
    words = "library changed: shouting 7 → 8"
    assert project.cli("status").stdout.count(words) == 3, "count, encode and validate"
    done = project.build("-v")
    assert f"count: to do: {words}" in done.stderr
    assert list(project.actions(done).values()) == ["run", "up to date", "run", "run"]
    assert read_manifest(project.root / "data/tokens").filter_packages == {"shouting": "shouting 8"}
    assert project.cli("verify").returncode == 0
