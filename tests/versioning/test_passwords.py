"""Passwords in URLs are refused, and no file or message has them."""

import traceback
from pathlib import Path

import pytest

from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.errors import ParamsError, VersionsError
from tokenmill.versioning import git
from tokenmill.versioning.publish import Publication, push

SECRET = "open-sesame"
URL = f"http://user:{SECRET}@127.0.0.1:9/x.git"


@pytest.mark.parametrize("command", ["build", "status", "plan", "pin"])
def test_a_password_in_the_parameters_is_refused_and_stays_there(project: Project, command: str) -> None:
    project.set(tokenizer={"from": URL, "name": "tokenizer", "version": "v1.0.0"})
    done = project.cli(command, "--json", "--debug")
    assert done.returncode == 2
    assert "params.yaml, line " in done.stderr and "the URL has a password" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    holders = {path.name for path in project.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()}
    assert holders == {"params.yaml"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("fetch", "tokenizer@v1.0.0", "--from", URL, "new"),
        ("fetch", f"{URL}@v1.0.0", "new"),
        ("diff", "tokenizer@v1.0.0", "tokenizer@v1.1.0", "--from", URL),
        ("download", URL, "new"),
        ("upload", f"s3://user:{SECRET}@bucket"),
        ("gc", f"file://user:{SECRET}@host/place"),
        ("info", URL),
        ("verify", URL),
        ("build", URL),
    ],
)
def test_a_password_on_the_command_line_is_not_repeated(project: Project, arguments: tuple[str, ...]) -> None:
    done = project.cli(*arguments, "--json", "--debug")
    assert done.returncode == 2
    assert SECRET not in done.stdout + done.stderr


def test_a_password_is_refused_by_the_python_interface() -> None:
    with pytest.raises(ParamsError, match=r"the repository of tokenizer@v1\.0\.0: the URL has a password"):
        Tokenizer.load("tokenizer@v1.0.0", repo=URL)


def test_a_password_is_cut_out_of_what_git_and_its_callers_say(tmp_path: Path) -> None:
    git.git(tmp_path, "init", "--quiet")
    git.git(tmp_path, "remote", "add", "origin", f"file://user:{SECRET}@host/nowhere")
    for repository in (URL, "origin"):
        with pytest.raises(VersionsError) as caught:
            git.tags_of(tmp_path, repository)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(VersionsError) as caught:
        git.git(tmp_path, "clone", f"https://user:{SECRET}/x@host:nowhere/y")
    assert SECRET not in str(caught.value) and "https://***@host" in str(caught.value)


def test_a_remote_of_dvc_with_a_password_is_refused_before_a_push(project: Project) -> None:
    project.dvc("remote", "add", "--default", "store", URL)
    path = project.root / "data/tokenizer"
    with pytest.raises(ParamsError, match=r"\.dvc/config: remote store: the URL has a password"):
        push(Publication(project.root, "tokenizer", "v1.0.0", path, "0" * 40, None, None, False), None)


@pytest.mark.parametrize("url", ["ssh://git@host/x", "git@host:x", "https://host:8443/x@v1", "s3://bucket/a:b@c"])
def test_a_user_and_a_port_are_no_password(url: str, tmp_path: Path) -> None:
    error = VersionsError(f"{url}: unknown")
    assert str(error) == f"{url}: unknown"
