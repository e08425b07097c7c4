"""Names of tags, branches and files that are no UTF-8, and names that no file can have: each is passed over, or named in a line."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.builders import in_process
from tests.builders.document_sets import documents_dataset
from tests.builders.teams import Team, commit, copied, identify, make_team, run
from tests.conftest import Project, make_project
from tokenmill.errors import TokenmillError, ValidationError
from tokenmill.storage.anywhere import list_files
from tokenmill.storage.atomic import sha256_directory
from tokenmill.versioning import git
from tokenmill.versioning.registry import directory_md5
from tokenmill_reader.copy_check import check
from tokenmill_reader.manifest import own_digest

OTHER_BYTES = os.fsdecode(b"caf\xe9")
REFERENCES = {
    "no UTF-8": OTHER_BYTES,
    "a line separator": "a\u2028b",
    "a space that does not break": "a\u00a0b",
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A team with the version v1.0.0 of its tokenizer."""
    team = make_team(make_project(tmp_path_factory.mktemp("names") / "project"))
    done = team.project.cli("publish", "tokenizer@v1.0.0")
    assert done.returncode == 0, done.stderr
    return team


@pytest.fixture
def team(published: Team, tmp_path: Path) -> Team:
    return copied(published, tmp_path / "team")


def refer(repository: Path, name: str) -> None:
    """Sets a tag and a branch of this name. git's own commands for it are those of another program: they write such names, too."""
    head = run(repository, "git", "rev-parse", "HEAD").strip()
    for kind in ("tags", "heads"):
        run(repository, "git", "update-ref", f"refs/{kind}/{name}", head)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with a commit."""
    root = tmp_path / "repository"
    root.mkdir()
    run(root, "git", "init", "-q")
    identify(root)
    run(root, "git", "commit", "-q", "--allow-empty", "-m", "First")
    return root


@pytest.mark.parametrize("name", REFERENCES.values(), ids=REFERENCES)
def test_a_tag_may_have_any_name(repository: Path, name: str) -> None:
    refer(repository, name)
    head = git.commit_of(repository, "HEAD")
    assert git.tags_of(repository, ".") == {name: head}
    assert git.commit_of(repository, f"refs/heads/{name}") == head
    assert f"refs/heads/{name}" in git.lines(repository, "for-each-ref", "--format=%(refname)")


@pytest.mark.parametrize("name", [OTHER_BYTES, "a\rb", "a\r\nb", "a\u2028b"])
def test_a_changed_file_is_listed_by_its_name(repository: Path, name: str) -> None:
    (repository / name).touch()
    assert git.changed_files(repository) == [name]


def test_the_message_of_a_tag_may_have_other_bytes(repository: Path) -> None:
    run(repository, "git", "-c", "i18n.commitEncoding=latin1", "tag", "-a", "t", "-m", f"{OTHER_BYTES}\n\nsignature: x")
    assert git.tag_message(repository, str(repository), "t") == "caf\ufffd\n\nsignature: x\n"


@pytest.mark.parametrize("name", [OTHER_BYTES, "a\nb"])
def test_a_digest_of_a_folder_names_the_file_that_it_cannot_list(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a").touch()
    (tmp_path / "folder" / name).touch()
    for digest in (sha256_directory, directory_md5, lambda folder: list_files(str(folder))):
        with pytest.raises(TokenmillError, match="expected a name that is valid UTF-8, without line breaks"):
            digest(tmp_path / "folder")


@pytest.mark.parametrize("name", ["arrow/a\0b", "arrow/\ud800", "\0"], ids=["NUL", "half a pair", "NUL alone"])
def test_a_manifest_with_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    folder = documents_dataset(tmp_path / "tokens", [[[1, 2], [3]]], ["arrow"])
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    content["sets"][0]["parts"][0]["files"][0]["name"] = name
    content["digest"] = own_digest(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValidationError, match=r"no name of a file in the dataset|found a lone surrogate"):
        check(folder)
    for command in (["verify", str(folder), "--no-source"], ["info", str(folder)]):
        done = in_process.tokenmill(tmp_path, *command)
        assert done.returncode in (0, 1, 2), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES.values(), ids=REFERENCES)
def test_versions_are_published_and_fetched_beside_tags_and_branches_of_any_name(
    team: Team, tmp_path: Path, name: str
) -> None:
    root = team.project.root
    for repository in (root, team.bare):
        refer(repository, name)
    importing = make_project(tmp_path / "importing")
    importing.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "v1.0.0"})
    place = str(tmp_path / "place")
    commands: Mapping[str, list[list[str]]] = {
        str(root): [
            ["fetch", "tokenizer@v1.0.0", str(tmp_path / "a")],
            ["fetch", "tokenizer@v1.0.0", "--from", f"file://{root}", str(tmp_path / "b")],
            ["upload", place],
            ["gc", place],
            ["diff", "tokenizer@v1.0.0", "tokenizer@v1.0.0"],
        ],
        str(importing.root): [["pin"], ["build"]],
    }
    for folder, some in commands.items():
        for command in some:
            done = in_process.tokenmill(Path(folder), *command)
            assert done.returncode == 0, (command, done.stderr)
    commit(team.project, "Upload")
    done = team.project.cli("publish", "tokenizer@v1.0.1")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", [".", "data/tokenizer", "data/tokens/documents", "data/tables", "data/quarantine", "flows"]
)
def test_a_file_whose_name_is_no_utf8_ends_no_command_in_a_defect(team: Team, tmp_path: Path, folder: str) -> None:
    root = team.project.root
    (root / folder / OTHER_BYTES).touch()
    importing = make_project(tmp_path / "importing")
    importing.set(tokenizer={"from": str(root / "data/tokenizer")})
    shutil.copytree(root / "data", tmp_path / "copy")
    for project, command in (
        (importing, ["pin"]),
        (importing, ["build"]),
        (team.project, ["status"]),
        (team.project, ["verify"]),
        (team.project, ["doctor"]),
        (team.project, ["publish", "tokenizer@v1.0.1"]),
        (team.project, ["upload", str(tmp_path / "place")]),
        (team.project, ["build"]),
        (Project(tmp_path), ["verify", "copy/tokens", "--no-source"]),
    ):
        done = project.cli(*command)
        assert done.returncode in (0, 1, 2), (command, done.stderr)
        if done.returncode == 2:
            assert "udce9" in done.stderr, (command, done.stderr)
