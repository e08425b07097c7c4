"""What somebody else put into a place, a dataset or a tokenizer folder is not followed, read for ever, or copied on."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

import tokenmill
from tests.builders.document_sets import documents_dataset
from tests.builders.teams import cli, make_team
from tests.builders.trained import TOKENIZER
from tests.conftest import Project, make_project
from tokenmill.artifacts.golden_making import make_golden
from tokenmill.config.publish_params import TokenizerSource
from tokenmill.dataset.manifest import parse_manifest
from tokenmill.errors import StorageError, ValidationError
from tokenmill.features.convert.convert import read_form, write_form
from tokenmill.features.share.upload import upload
from tokenmill.storage import anywhere
from tokenmill.versioning.import_tokenizer import import_pinned, pin_anew, pin_if_new
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.regular_files import read


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = make_project(tmp_path_factory.mktemp("foreign") / "project")
    project.build()
    return project


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc"), os.mkfifo], ids=["link", "fifo"])
def test_a_folder_with_a_link_or_a_fifo_is_not_listed(make: object, tmp_path: Path) -> None:
    (tmp_path / "place/one").mkdir(parents=True)
    (tmp_path / "place/one/file").write_bytes(b"x")
    assert list(anywhere.list_files(str(tmp_path / "place"))) == ["one/file"]
    make(tmp_path / "place/one/odd")  # type: ignore[operator]
    with pytest.raises(StorageError, match=r"one/odd: expected only files and folders; found a"):
        anywhere.list_files(str(tmp_path / "place"))


def test_a_link_to_a_folder_is_no_folder_of_a_place(tmp_path: Path) -> None:
    (tmp_path / "place/one").mkdir(parents=True)
    (tmp_path / "place/two").symlink_to("/etc")
    assert anywhere.list_folders(str(tmp_path / "place")) == ["one"]


def test_a_fifo_is_no_file_to_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for reading in (read, parquet_file):
        with pytest.raises(OSError, match="it is a FIFO, a socket or a device"):
            reading(tmp_path / "fifo")


def test_a_tokenizer_folder_with_a_link_is_not_imported(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    TOKENIZER.save(folder)
    (folder / "golden.json").write_text(make_golden(folder, TOKENIZER, {}).model_dump_json(), encoding="utf-8")
    (folder / "card.json").write_text("{}", encoding="utf-8")
    (tmp_path / "secret").write_text("of somebody", encoding="utf-8")
    (folder / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match=r"notes\.txt: .* found a symbolic link"):
        pin_anew(tmp_path, TokenizerSource.model_validate({"from": "folder"}))


@pytest.mark.parametrize("name", ["../out.parquet", "/etc/passwd", ".git/config", "documents/.GIT/hooks/x"])
def test_open_refuses_names_that_lead_out_of_the_dataset(name: str, tmp_path: Path) -> None:
    folder = documents_dataset(tmp_path / "tokens", [[[1, 2], [3]]], [])
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    shutil.copy(folder / manifest["shards"][0]["name"], tmp_path / "out.parquet")
    manifest["shards"][0]["name"] = name
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ValidationError, match="is no name of a file in the dataset"):
        tokenmill.open(folder)


def test_a_number_of_documents_beyond_all_files_is_refused(tmp_path: Path) -> None:
    folder = documents_dataset(tmp_path / "tokens", [[[1, 2], [3]]], [])
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["shards"][0]["n_documents"] = 10**30
    with pytest.raises(ValidationError, match=r"shards\.0\.n_documents: Input should be less than or equal to"):
        parse_manifest(json.dumps(manifest).encode(), "manifest.json")


def test_a_part_of_a_set_without_its_file_is_named(tmp_path: Path) -> None:
    folder = documents_dataset(tmp_path / "tokens", [[[1, 2], [3]]], ["nanogpt"])
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    [one] = [one for one in manifest["sets"] if one["format"] == "nanogpt"]
    for file in one["parts"][0]["files"]:
        (folder / file["name"]).rename(folder / f"{file['name']}.x")
        file["name"] += ".x"
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ValidationError, match="a part of the set nanogpt names no file"):
        tokenmill.open(folder, format="nanogpt")


@pytest.mark.slow
def test_gc_removes_nothing_behind_a_link(tmp_path: Path) -> None:
    team = make_team(make_project(tmp_path / "project"))
    upload(team.project.root, str(tmp_path / "place"))
    precious = tmp_path / "precious/kept.txt"
    precious.parent.mkdir()
    precious.write_text("kept", encoding="utf-8")
    os.utime(precious, (time.time() - 172_800,) * 2)
    (tmp_path / "place" / ("0" * 16)).symlink_to(precious.parent)
    done = cli(team.project, "gc", str(tmp_path / "place"), "--delete")
    assert done.returncode == 0, done.stderr
    assert precious.read_text(encoding="utf-8") == "kept"


@pytest.mark.slow
def test_a_download_does_not_copy_what_a_link_names(built: Project, tmp_path: Path) -> None:
    folder = Path(upload(built.root, str(tmp_path / "place")).url)
    (tmp_path / "secret").write_text("of somebody", encoding="utf-8")
    for make in (lambda path: path.symlink_to(tmp_path / "secret"), os.mkfifo):
        make(folder / "tokenizer/notes.txt")
        done = cli(Project(tmp_path), "download", str(folder), "copy")
        assert done.returncode == 2 and "notes.txt: expected only files and folders; found a " in done.stderr, (
            done.stderr
        )
        assert not (tmp_path / "copy").exists()
        (folder / "tokenizer/notes.txt").unlink()


@pytest.mark.slow
def test_fifos_and_links_in_a_copy_are_wrong_at_once(built: Project, tmp_path: Path) -> None:
    shutil.copytree(built.root / "data", tmp_path / "data")
    tokens = tmp_path / "data/tokens"
    (tokens / "elsewhere").symlink_to("/etc")
    done = cli(Project(tmp_path), "verify", "data/tokens", "--no-source")
    assert done.returncode == 1 and "elsewhere" in done.stdout + done.stderr, done.stdout
    (tokens / "elsewhere").unlink()
    shard = next(tokens.rglob("*.parquet"))
    for path, commands in (
        (tmp_path / "data/tables/documents.parquet", (["locate", "data/tokens", "--token", "3"],)),
        (shard, (["verify", "data/tokens", "--no-source"],)),
        (tokens / "manifest.json", (["verify", "data/tokens"], ["info", "data/tokens"])),
    ):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        for command in commands:
            done = cli(Project(tmp_path), *command)
            assert done.returncode in (1, 2) and path.name in done.stdout + done.stderr, (command, done)
        path.unlink()
        path.write_bytes(content)


BESIDE = (
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "chat_template.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
    "tokenizer.json",
)


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("way", ["import", "convert"])
def test_a_link_out_of_a_tokenizer_folder_is_not_followed(tmp_path: Path, name: str, way: str) -> None:
    folder = tmp_path / "folder"
    TOKENIZER.save(folder)
    content = (folder / name).read_text(encoding="utf-8") if (folder / name).exists() else '{"chat_template": "SECRET"}'
    (tmp_path / "secret").write_text(content, encoding="utf-8")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "secret")
    with pytest.raises(
        StorageError, match=rf"{name}: expected a file in its folder; found a symbolic link to .*secret"
    ):
        take(way, tmp_path)


def test_the_folder_of_further_chat_templates_is_no_link_out_of_the_tokenizers(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "folder")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/x.jinja").write_text("SECRET", encoding="utf-8")
    (tmp_path / "folder/additional_chat_templates").symlink_to(tmp_path / "mine")
    with pytest.raises(StorageError, match=r"found a symbolic link to .*mine"):
        take("import", tmp_path)


def test_merges_and_models_that_are_links_out_of_their_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("#version: 0.2\na b\n", encoding="utf-8")
    for name in ("merges.txt", "tokenizer.model"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).symlink_to(tmp_path / "secret")
        if name == "merges.txt":
            (folder / "vocab.json").write_text("{}", encoding="utf-8")
        with pytest.raises(StorageError, match=rf"{name}: expected a file in its folder"):
            read_form(folder, "gpt2")


@pytest.mark.parametrize("way", ["import", "convert"])
@pytest.mark.parametrize("store", ["hub/blobs", "folder/own", "cache/files/md5/0f"])
def test_links_into_a_hubs_cache_the_folder_and_dvcs_cache_are_followed(tmp_path: Path, store: str, way: str) -> None:
    folder = tmp_path / ("hub/snapshots/0123" if store == "hub/blobs" else "folder")
    TOKENIZER.save(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    (tmp_path / store).mkdir(parents=True)
    for i, path in enumerate(path for path in list(folder.iterdir()) if path.is_file()):
        path.rename(tmp_path / store / f"{i:030x}")
        path.symlink_to(os.path.relpath(tmp_path / store / f"{i:030x}", folder))
    if folder.name != "folder":
        (tmp_path / "folder").symlink_to(folder)
    take(way, tmp_path)
    assert (tmp_path / "taken/chat_template.jinja").read_text(encoding="utf-8") == "{{ messages }}"


def take(way: str, root: Path) -> None:
    """Takes the tokenizer in `folder` over into `taken`."""
    if way == "convert":
        write_form(read_form(root / "folder"), root / "taken", "tokenizer.json")
    else:
        asked = TokenizerSource.model_validate({"from": "folder"})
        import_pinned(root, pin_if_new(root, asked), root / "taken")
