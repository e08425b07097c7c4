import os
from pathlib import Path

import pytest

from tokenmill.config.sources import DocumentSource, Reading
from tokenmill.corpus.shards import Shard, find_shards
from tokenmill.errors import CorpusError


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * len(name))


def names(root: Path, glob: str | list[str]) -> list[str]:
    return [shard.name for shard in find_shards(root, glob)]


def error_of(root: Path, glob: str | list[str]) -> str:
    with pytest.raises(CorpusError) as raised:
        find_shards(root, glob)
    return str(raised.value)


def test_shards_are_sorted_unique_and_named_from_the_root(tmp_path: Path) -> None:
    touch(tmp_path, "data/b.jsonl", "data/a.txt", "data/deep/er/c.parquet", "data/a.jsonl.zst")
    everything = ["data/a.jsonl.zst", "data/a.txt", "data/b.jsonl", "data/deep/er/c.parquet"]
    assert names(tmp_path, "data/**/*") == everything
    assert (
        names(tmp_path, ["data/*.jsonl", "data/**/*", str(tmp_path / "data/a.txt"), "data/../data/a.txt"]) == everything
    )
    found = find_shards(tmp_path, "data/b.jsonl")[0]
    assert (found.path, found.n_bytes) == (tmp_path / "data/b.jsonl", len("data/b.jsonl"))


def test_a_relative_root_names_the_same_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "data/a.txt")
    monkeypatch.chdir(tmp_path)
    assert names(Path(), "data/*") == names(Path(), str(tmp_path / "data/*")) == ["data/a.txt"]


def test_hidden_and_unfinished_files_and_folders_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", ".gitignore", ".h.txt", "b.txt.12.partial", "c.txt.tmp", ".cache/d.txt")
    (tmp_path / "folder.txt").mkdir()
    assert names(tmp_path, "**/*") == ["a.txt"]
    assert names(tmp_path, ".*/*") == [".cache/d.txt"]


def test_a_glob_may_lead_outside_the_root(tmp_path: Path) -> None:
    touch(tmp_path, "project/x.txt", "lake/a.txt")
    root = tmp_path / "project"
    assert names(root, str(tmp_path / "lake/*")) == [(tmp_path / "lake/a.txt").as_posix()]
    assert names(root, "../lake/*") == ["../lake/a.txt"]
    assert all(shard.path.is_file() for shard in find_shards(root, ["../lake/*", str(tmp_path / "lake/*")]))


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    touch(tmp_path, "lake/a.txt", "data/b.txt")
    (tmp_path / "data/lake").symlink_to(tmp_path / "lake")
    (tmp_path / "data/loop").symlink_to(tmp_path / "data")
    assert names(tmp_path, "data/**/*") == ["data/b.txt", "data/lake/a.txt"]
    assert names(tmp_path / "lake", "../data/**/*") == ["../data/b.txt", "../data/lake/a.txt"]


def test_a_link_that_leads_nowhere_is_an_error_not_a_missing_shard(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt")
    (tmp_path / "b.txt").symlink_to("/cache/gone")
    message = error_of(tmp_path, "*")
    assert "b.txt (a link to /cache/gone)" in message and "No such file" in message


def test_no_match_names_the_glob_the_folder_and_what_is_there(tmp_path: Path) -> None:
    touch(tmp_path, *(f"data/raw/{name}.csv" for name in "gfedcba"))
    message = error_of(tmp_path, "data/raw/*.jsonl")
    assert "'data/raw/*.jsonl'" in message and str(tmp_path / "data/raw") in message
    assert "a.csv, b.csv, c.csv, d.csv, e.csv and 2 more" in message
    message = error_of(tmp_path, "data/row/**/*.jsonl")
    assert f"{tmp_path / 'data/row'}, which is not there. {tmp_path / 'data'} holds raw/." in message
    (tmp_path / "empty").mkdir()
    assert "holds nothing" in error_of(tmp_path, "empty/*")


@pytest.mark.parametrize("glob", ["data/raw", "data/raw/", "data/*"])
def test_a_glob_that_names_a_folder_is_told_how_to_name_its_files(tmp_path: Path, glob: str) -> None:
    touch(tmp_path, "data/raw/deep/a.txt")
    expected = glob.rstrip("/") + "/**/*"
    assert repr(expected) in error_of(tmp_path, glob)
    assert names(tmp_path, expected) == ["data/raw/deep/a.txt"]


def test_documents_that_are_still_with_dvc_are_to_be_pulled(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/raw.dvc").touch()
    with pytest.raises(CorpusError, match=r"data/raw is tracked by DVC and not downloaded\. Run `dvc pull`\.$"):
        find_shards(tmp_path, "data/raw/**/*")


def test_every_glob_of_a_list_must_match(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt")
    assert "'*.jsonl'" in error_of(tmp_path, ["*.txt", "*.jsonl"])


@pytest.mark.parametrize("name", ["notes.doc", "a.jsonl.lz4", "README", "a.parquet.gz", "json"])
def test_a_file_of_unknown_kind_is_named_with_the_kinds_there_are(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "a.txt", name)
    message = error_of(tmp_path, "*")
    assert message.startswith(f"{name}: ")
    assert all(
        suffix in message for suffix in (".parquet", ".jsonl", ".ndjson", ".json", ".arrow", ".txt", ".gz", ".xz")
    )


def test_a_download_that_has_not_ended_is_never_read(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.txt.crdownload")
    source = DocumentSource(None, ("*",), Reading("text"), "as_text", 1.0, None, format="text")
    with pytest.raises(CorpusError, match=r"b\.txt\.crdownload: .*downloads that have not ended"):
        find_shards(tmp_path, "*", source=source)


def test_all_files_that_cannot_be_read_are_in_one_message(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.md", "c/b.md", "d.md.gz", "README")
    (tmp_path / "gone.txt").symlink_to("/nowhere")
    message = error_of(tmp_path, "**/*")
    assert "2 .md, like b.md; 1 without a suffix, like README; 1 .md.gz, like d.md.gz" in message
    assert "gone.txt (a link to /nowhere)" in message and "source.format: text" in message


def test_the_message_says_how_to_convert_files_and_which_may_be_read_as_text(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.warc.gz", "c.PDF")
    message = error_of(tmp_path, "*")
    assert "  .warc: write the texts of its pages as .jsonl, with warcio" in message and "  .pdf: write" in message
    assert (
        "format: text" not in message
        and "Convert them, as the page “From csv, WARC, the Hub, folders” shows" in message
    )
    with (tmp_path / "d.md").open("wb") as file:
        file.truncate(52_000_000)
    assert "those in .md are plain text" in error_of(tmp_path, "*")
    assert "Each file is then one document, d.md one of 52 MB. Otherwise convert it," in error_of(tmp_path, "d.md")


def test_files_that_describe_a_folder_of_documents_are_none(tmp_path: Path) -> None:
    saved = ["dataset_dict.json", "train/data-00000-of-00001.arrow", "train/dataset_info.json", "train/state.json"]
    clone = [".gitattributes", "README.md", "data/train.parquet", "dataset_infos.json"]
    touch(
        tmp_path, *(f"raw/saved/{name}" for name in saved), *(f"raw/clone/{name}" for name in clone), "raw/state.json"
    )
    expected = ["raw/clone/data/train.parquet", "raw/saved/train/data-00000-of-00001.arrow", "raw/state.json"]
    assert names(tmp_path, "raw/**/*") == expected
    assert "README.md" in error_of(tmp_path, "raw/clone/*.md")
    (tmp_path / "raw/clone/.gitattributes").unlink()
    assert "raw/clone/README.md: files of this kind" in error_of(tmp_path, "raw/**/*")


def test_a_name_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt")).touch()
    except OSError:
        pytest.skip("this file system takes no such name")
    assert "not valid UTF-8" in error_of(tmp_path, "*")
    (tmp_path / "sub").mkdir()
    touch(tmp_path / "sub", "é 東.txt")
    assert names(tmp_path, "sub/*") == ["sub/é 東.txt"]


def test_a_folder_that_cannot_be_listed_is_an_error_not_an_empty_one(tmp_path: Path) -> None:
    touch(tmp_path, "data/a.txt", "data/secret/b.txt")
    (tmp_path / "data/secret").chmod(0)
    user = os.geteuid()
    if user == 0:  # root may list all
        os.seteuid(65534)
    try:
        assert "cannot be listed: Permission denied" in error_of(tmp_path, "data/**/*")
    finally:
        os.seteuid(user)
        (tmp_path / "data/secret").chmod(0o700)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    assert "a.txt: is a FIFO" in error_of(tmp_path, "*")


def test_a_name_of_no_kind_is_an_error_of_the_file() -> None:
    with pytest.raises(CorpusError, match=r"data/raw/x: expected a name that ends with \.parquet"):
        _ = Shard(Path("data/raw/x"), "data/raw/x", 0).kind
