"""A project imports a published tokenizer instead of training one, and only the pinned one."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders.teams import Said, Team, cli, commit, copied, keys, make_team, run
from tests.conftest import Project, new_project
from tokenmill import Tokenizer
from tokenmill.errors import TokenmillDeprecationWarning, VersionsError
from tokenmill.storage.atomic import sha256_directory


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A team that has published tokenizer@v1.0.0, as prod and signed."""
    folder = tmp_path_factory.mktemp("published")
    team = make_team(new_project.__wrapped__(folder)("project"))  # type: ignore[attr-defined]
    private, _public = keys(folder)
    done = cli(team.project, "publish", "tokenizer@v1.0.0", "--stage", "prod", "--sign", str(private))
    assert done.returncode == 0, done.stderr
    return team


@pytest.fixture
def team(published: Team, tmp_path: Path) -> Team:
    return copied(published, tmp_path / "team")


@pytest.fixture
def user(new_project: Any) -> Project:
    """Another project, with documents of its own, whose dvc.yaml depends on tokenmill.lock as the delivered one does."""
    project: Project = new_project("user")
    project.write("a.jsonl", ["the cat and the cat", "o gato"])
    project.depend("tokenmill.lock", "train-vocab", "encode")
    return project


def lock(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.root / "tokenmill.lock").read_text(encoding="utf-8"))["tokenizer"]
    return found


def refused(project: Project) -> str:
    done = cli(project, "build")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def build(project: Project) -> Said:
    done = cli(project, "build")
    assert done.returncode == 0, done.stderr
    return done


def publish_another(team: Team, version: str, *arguments: str) -> None:
    """Trains, commits and publishes another tokenizer."""
    team.project.set(train_vocab__vocab_size=270)
    build(team.project)
    commit(team.project)
    done = cli(team.project, "publish", f"tokenizer@{version}", *arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_build_takes_a_version_records_it_and_dvc_agrees(team: Team, user: Project) -> None:
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "v1.0.0"})
    done = build(user)
    assert user.actions(done) == {"count": "not needed", "train-vocab": "imported", "encode": "run", "validate": "run"}
    theirs, ours = team.project.root / "data/tokenizer", user.root / "data/tokenizer"
    assert sha256_directory(ours) == sha256_directory(theirs)
    commit_of = run(team.project.root, "git", "rev-parse", "tokenizer@v1.0.0^{commit}").strip()
    manifest = json.loads((user.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))
    origin = {"source": str(team.bare), "name": "tokenizer", "version": "v1.0.0", "commit": commit_of}
    assert manifest["tokenizer_origin"] == origin
    assert lock(user)["digest"] == manifest["tokenizer_digest"] == Tokenizer.load(theirs).digest
    assert set(user.actions(build(user)).values()) == {"up to date"}
    assert "up to date" in user.run("dvc", "status").stdout
    user.write("new.jsonl", ["the new document"])
    repro = user.run("dvc", "repro")
    assert repro.returncode == 0, repro.stderr
    assert sha256_directory(ours) == sha256_directory(theirs)


@pytest.mark.slow
def test_a_stage_stays_at_the_pinned_version_until_it_is_pinned_anew(team: Team, user: Project) -> None:
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "prod"})
    build(user)
    publish_another(team, "v1.1.0", "--stage", "prod")
    assert set(user.actions(build(user)).values()) == {"up to date"}
    assert lock(user)["version"] == "v1.0.0"
    done = cli(user, "pin")
    assert done.returncode == 0, done.stderr
    assert "v1.1.0" in done.stdout
    assert user.actions(build(user))["train-vocab"] == "imported"
    assert Tokenizer.load(user.root / "data/tokenizer").vocab_size == 270


@pytest.mark.slow
def test_a_tag_that_was_moved_is_refused(team: Team, user: Project) -> None:
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "v1.0.0"})
    build(user)
    before = lock(user)["commit"]
    for tag in ("tokenizer@v1.0.0", "tokenizer#prod#1"):
        run(team.bare, "git", "tag", "-d", tag)
        run(team.project.root, "git", "tag", "-d", tag)
    publish_another(team, "v1.0.0")
    done = cli(user, "build", "--only", "train-vocab", "--force")
    assert done.returncode == 2
    assert "the tag was moved" in done.stderr
    assert before in done.stderr


def test_a_digest_that_is_not_the_pinned_one_fails_with_both(team: Team, user: Project) -> None:
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "v1.0.0"})
    build(user)
    pin = lock(user)
    path = user.root / "tokenmill.lock"
    path.write_text(path.read_text(encoding="utf-8").replace(pin["digest"], "0" * 64), encoding="utf-8")
    message = refused(user)
    assert "0" * 64 in message
    assert pin["digest"] in message


def test_a_lock_that_is_missing_where_nothing_is_taken_is_written_before_the_first_stage(user: Project) -> None:
    done = cli(user, "build", "--only", "count")
    assert done.returncode == 0, done.stderr
    assert done.stderr.index("tokenmill.lock: was missing") < done.stderr.index("count: started")
    assert json.loads((user.root / "tokenmill.lock").read_text(encoding="utf-8")) == {"tokenizer": None}


def test_dvc_repro_refuses_what_is_not_pinned(team: Team, user: Project) -> None:
    (user.root / "tokenmill.lock").write_text('{"tokenizer": null}\n', encoding="utf-8")
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "v1.0.0"})
    done = user.run("dvc", "repro")
    assert done.returncode != 0
    assert "nothing is pinned. Run `tokenmill build` or `tokenmill pin`" in done.stderr


@pytest.mark.slow
def test_a_file_or_directory_is_taken_and_pinned(team: Team, user: Project) -> None:
    published = team.project.root / "data/tokenizer"
    original = Tokenizer.load(published)
    for asked in (
        {"from": str(published)},
        {"from": str(published / "tokenizer.json")},
        {"from": str(published / "vocab.tiktoken"), "pattern": "gpt2", "special_tokens": {"<|endoftext|>": 0}},
    ):
        user.set(tokenizer=asked)
        build(user)
        taken = Tokenizer.load(user.root / "data/tokenizer")
        assert taken.encode("the cat — naïve 東京") == original.encode("the cat — naïve 東京")
        assert lock(user)["digest"] == taken.digest
        assert (user.root / "data/tokenizer/golden.json").is_file()
    file = user.root / "other.tiktoken"
    file.write_bytes((published / "vocab.tiktoken").read_bytes())
    user.set(tokenizer={"from": "other.tiktoken", "pattern": "gpt2", "special_tokens": {"<|endoftext|>": 0}})
    build(user)
    file.write_bytes(b"\n".join(file.read_bytes().splitlines()[:-1]) + b"\n")
    for asked_for in (["build"], ["build", "--only", "train-vocab", "--force"], ["build", "--rehash"], ["status"]):
        done = cli(user, *asked_for)
        assert done.returncode == 2
        assert "not the tokenizer that tokenmill.lock pins" in done.stderr
    assert cli(user, "pin").returncode == 0
    assert set(user.actions(build(user)).values()) == {"up to date", "imported", "run"}
    directory = user.root / "of-others"
    directory.mkdir()
    (directory / "tokenizer.json").write_bytes((user.root / "data/tokenizer/tokenizer.json").read_bytes())
    user.set(tokenizer={"from": "of-others"})
    build(user)
    (directory / "tokenizer.json").unlink()
    assert "of-others" in cli(user, "build").stderr
    user.set(tokenizer={"from": "other.tiktoken", "pattern": "gpt2", "special_tokens": {"<|endoftext|>": 0}})
    build(user)
    file.unlink()  # as in a clone that has only what was made with it
    assert set(user.actions(build(user)).values()) == {"up to date"}


def test_a_tokenizer_that_cannot_be_imported_is_not_pinned(team: Team, user: Project) -> None:
    published = team.project.root / "data/tokenizer/vocab.tiktoken"
    user.set(tokenizer={"from": str(published), "pattern": "gpt2", "special_tokens": {"<|endoftext|>": 0}})
    assert cli(user, "pin").returncode == 0
    before = lock(user)
    user.set(
        tokenizer={"from": str(published), "pattern": r"\p{N}{1,3}+|[\s\S]", "special_tokens": {"<|endoftext|>": 0}}
    )
    done = cli(user, "pin")
    assert done.returncode == 2
    assert "does not mean the same in the tokenizers library" in done.stderr
    assert lock(user) == before


def test_what_cannot_be_asked_for_is_refused_with_what_there_is(team: Team, user: Project) -> None:
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "v9.0.0"})
    assert "Versions of tokenizer: v1.0.0; stages: prod" in refused(user)
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer"})
    assert "name and version" in refused(user)
    assert cli(team.project, "publish", "dataset@v1.0.0").returncode == 0
    user.set(tokenizer={"from": str(team.bare), "name": "dataset", "version": "v1.0.0"})
    assert f"dataset@v1.0.0 from {team.bare} is not a tokenizer" in refused(user)
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "v1.0.0", "nam": "x"})
    assert "unknown key" in refused(user)
    user.set(tokenizer={"from": str(team.bare), "name": "tokenizer", "version": "v1.0.0"})
    user.set(encode__end_of_document="<eos>")
    assert "one of the tokenizer's special tokens ('<|endoftext|>')" in refused(user)
    user.set(tokenizer={"from": str(user.root / "nowhere"), "name": "tokenizer", "version": "v1.0.0"})
    assert f"{user.root / 'nowhere'}: git ls-remote" in refused(user)


def test_a_directory_whose_golden_vectors_are_of_another_tokenizer_is_named(team: Team, user: Project) -> None:
    directory = user.root / "copied"
    shutil.copytree(team.project.root / "data/tokenizer", directory)
    golden = json.loads((directory / "golden.json").read_text(encoding="ascii"))
    (directory / "golden.json").unlink()
    (directory / "golden.json").write_text(json.dumps({**golden, "tokenizer_digest": "0" * 64}), encoding="ascii")
    user.set(tokenizer={"from": "copied"})
    assert "error[TM301]: copied/golden.json: made for the tokenizer 000" in refused(user)


def test_python_loads_a_version(published: Team) -> None:
    expected = Tokenizer.load(published.project.root / "data/tokenizer")
    for reference in ("tokenizer@v1.0.0", "tokenizer@prod"):
        with pytest.warns(TokenmillDeprecationWarning, match="Fetch the version with `tokenmill fetch`"):
            loaded = Tokenizer.load(reference, repo=published.bare, public_key=published.bare.parent / "pub.pem")
        assert loaded.digest == expected.digest
    run(published.project.root, "git", "tag", "tokenizer#prod!#2")  # GTO's tag for a stage that is taken away
    run(published.project.root, "git", "tag", "tokenizer#dev#3")
    with pytest.raises(VersionsError, match=r"no tokenizer@prod.* stages: dev\."):
        Tokenizer.load("tokenizer@prod", repo=published.project.root)
    run(published.project.root, "git", "tag", "--delete", "tokenizer#prod!#2", "tokenizer#dev#3")
    with pytest.raises(VersionsError, match=r"no tokenizer@v2\.0\.0"):
        Tokenizer.load("tokenizer@v2.0.0", repo=published.bare)


def test_the_name_of_a_repository_is_no_option_of_git(team: Team, tmp_path: Path) -> None:
    run_by_git = tmp_path / "run"
    done = cli(team.project, "fetch", "tokenizer@v1.0.0", "got", f"--from=--upload-pack=touch {run_by_git};")
    assert done.returncode == 2
    assert "git ls-remote" in done.stderr
    assert not run_by_git.exists()


def test_what_git_says_before_its_error_is_told(user: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    user.set(tokenizer={"from": "ssh://nobody@127.0.0.1/team.git", "name": "tokenizer", "version": "v1.0.0"})
    monkeypatch.setenv("GIT_SSH_COMMAND", "sh -c 'echo no route there >&2; exit 255'")
    assert "no route there; fatal: Could not read from remote repository." in refused(user)
