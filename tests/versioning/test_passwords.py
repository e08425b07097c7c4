"""Passwords in URLs are refused, and no file or message has them."""

import json
import logging
import time
import traceback
from pathlib import Path

import pytest

from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.cli.log_records import without_passwords_in_logs
from tokenmill.config.load_params import load_params
from tokenmill.errors import ParamsError, VersionsError
from tokenmill.project.doctor import examine
from tokenmill.storage.anywhere import place_of
from tokenmill.versioning import git
from tokenmill.versioning.dvc_stage import DvcStage
from tokenmill.versioning.publish import Publication, push
from tokenmill_reader.description import info, lines_of
from tokenmill_reader.shown import without_passwords

SECRET = "open-sesame"
URL = f"http://user:{SECRET}@127.0.0.1:9/x.git"
MANIFEST = Path(__file__).parents[1] / "dataset/made_by_format_7/data/tokens/manifest.json"
URLS = [
    URL,
    f"http://{SECRET}@127.0.0.1:9/x.git",
    f"HTTP://user%3A{SECRET}@127.0.0.1:9/x.git",
    f"http://127.0.0.1:9/x.git?private_token={SECRET}",
    f"http://127.0.0.1:9/x.git?{SECRET}",
    f"http://127.0.0.1:9/x.git#access_token={SECRET}",
    f"http://127.0.0.1:9/x?to=https%3A%2F%2Fuser%3A{SECRET}%40host",
    f"git+http://{SECRET}@127.0.0.1:9/x.git",
    f"az://container/x?sv=1&sig={SECRET}",
    f"ssh://user%3A{SECRET}@127.0.0.1:9/x",
    f"http://127.0.0.1:9/x.git;token={SECRET}",
    f"http://127.0.0.1:9/x.git;a?{SECRET}",
    f"http://127.0.0.1:9/x.git%3Ftoken%3D{SECRET}",
]


def test_what_only_looks_like_a_password_stays() -> None:
    text = '["http://host:80","a@b"] ssh://git@host:22/x http://host:80/a@b https://$USER:$WORD@host s3://a/?.b http://h/a%3Fb;c; file:///a%3Fb%3Dc'
    assert without_passwords(text) == text


@pytest.mark.parametrize("part", ["https://", "%26a", "%3fa", ";a", "?", "https://u:", "&a=", "%3", "a@"])
def test_a_long_text_takes_a_moment(part: str) -> None:
    began_s = time.process_time()
    without_passwords(f"http://x?{part * 50_000}")
    assert time.process_time() - began_s < 10  # minutes, where each part is compared with all behind it


@pytest.mark.parametrize(
    "around", ["{}", "oauth2:{}@host/x.git", "https://host/{}/x", "x-access-token:{}@host:o/r.git"]
)
@pytest.mark.parametrize(
    "begin", ["ghp_", "ghs_", "github_pat_11A_", "hf_", "glpat-", "xoxb-12-", "hooks.slack.com/services/T0/B0/"]
)
def test_a_token_of_a_known_form_is_cut_out_wherever_it_stands(begin: str, around: str) -> None:
    token = "0aB1cD2eF3" * 6
    assert token[-10:] not in without_passwords(around.format(begin + token))


@pytest.mark.parametrize("text", ["data/raw/hf_transformers_documentation/x.jsonl", "ghp_pages/a", "glpat-1", "xoxb-a"])
def test_a_name_that_begins_as_a_token_stays(text: str) -> None:
    assert without_passwords(text) == text


@pytest.mark.parametrize(
    ("command", "url"), [*(("status", url) for url in URLS), ("build", URL), ("plan", URL), ("pin", URL)]
)
def test_a_password_in_the_parameters_is_refused_and_stays_there(project: Project, command: str, url: str) -> None:
    project.set(tokenizer={"from": url, "name": "tokenizer", "version": "v1.0.0"})
    done = project.cli(command, "--json", "--debug")
    assert done.returncode == 2
    assert "params.yaml, line " in done.stderr and "the URL has a password, a token or a query" in done.stderr
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


@pytest.mark.parametrize("url", URLS)
def test_a_password_is_refused_by_the_python_interface(url: str) -> None:
    with pytest.raises(ParamsError, match=r"the repository of tokenizer@v1\.0\.0: the URL has a password") as caught:
        Tokenizer.load("tokenizer@v1.0.0", repo=url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", URLS)
def test_a_password_is_refused_in_a_place(url: str) -> None:
    with pytest.raises(ParamsError, match=r"the place: the URL has a password") as caught:
        place_of(url)
    assert SECRET not in str(caught.value)


def test_a_comment_of_the_parameters_may_have_a_query(project: Project) -> None:
    text = (project.root / "params.yaml").read_text(encoding="utf-8")
    (project.root / "params.yaml").write_text(f"# see https://example.org/?page=1\n{text}", encoding="utf-8")
    load_params(project.root / "params.yaml")


@pytest.mark.parametrize("url", URLS)
def test_a_password_is_cut_out_of_messages_diagnoses_and_logs(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SECRET not in str(VersionsError(f"fatal: unable to access '{url}/': The requested URL", "failed", url))
    assert SECRET not in str(VersionsError(Path(url), "is missing."))
    monkeypatch.setenv("PREFECT_API_URL", url)
    assert not [one for one in examine(None) if SECRET in one.found]
    before = logging.getLogRecordFactory()
    without_passwords_in_logs()
    try:
        logging.getLogger("a library").error("cannot read %s", url, exc_info=OSError(url))
    finally:
        logging.setLogRecordFactory(before)
    assert "cannot read " in caplog.text and SECRET not in caplog.text


def test_info_cuts_a_password_out_of_a_manifest(tmp_path: Path) -> None:
    found = json.loads(MANIFEST.read_bytes())
    found["tokenizer_origin"] = {"source": URL, "name": None, "version": None, "commit": None}
    (tmp_path / "manifest.json").write_text(json.dumps(found), encoding="utf-8")
    described = info(tmp_path)
    assert SECRET not in json.dumps(described) and SECRET not in "".join(lines_of(described))


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


def test_a_program_with_a_password_among_its_arguments_may_drive_a_build(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["nightly", URL])
    written: list[str] = []
    look = DvcStage._record

    def look_and_record(stage: DvcStage) -> None:
        written.append((project.root / ".dvc/tmp/rwlock").read_text(encoding="utf-8"))
        look(stage)

    monkeypatch.setattr(DvcStage, "_record", look_and_record)
    project.build()
    (project.root / "data/tokens/manifest.json").unlink()
    project.build("--force")
    assert len(written) > 4 and all("nightly" in text and SECRET not in text for text in written)
