"""tokenmill doctor names what is wrong with a machine or a project, and how to mend it."""

import re
import shutil
import socket
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.teams import cli, findings, identify, run
from tests.conftest import Project


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("doctor")
    assert cli(Project(folder), "init", "project").returncode == 0
    project = Project(folder / "project")
    project.write("a.jsonl", ["the cat"])
    identify(project.root)
    (project.root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n", encoding="utf-8")
    project.dvc("remote", "add", "-d", "store", str(folder / "store"))
    run(project.root, "git", "add", ".")
    run(project.root, "git", "commit", "-q", "-m", "First")
    return project


@pytest.fixture
def project(first: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with nothing wrong, on a machine without settings of Prefect's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(first.root, tmp_path / "project", symlinks=True)
    copy = Project(tmp_path / "project")
    assert cli(copy, "status").returncode == 1  # which moves the site cache along
    return copy


def test_nothing_is_wrong_with_a_new_project_and_each_check_is_a_line(project: Project) -> None:
    found = findings(project, 0)
    assert {name: one["state"] for name, one in found.items() if one["state"] != "ok"} == {}
    lines = cli(project, "doctor").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ok"] * len(found)
    assert run(project.root, "git", "status", "--porcelain") == ""


def test_outside_of_a_project_the_machine_alone_is_checked(tmp_path: Path) -> None:
    found = findings(Project(tmp_path), 0)
    assert list(found) == ["Python", "libraries", "core", "git", "Prefect", "project"]
    assert "tokenmill init" in found["project"]["found"]


def test_a_library_below_what_tokenmill_asks_for_is_wrong(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old/prefect-3.6.21.dist-info").mkdir(parents=True)
    (tmp_path / "old/prefect-3.6.21.dist-info/METADATA").write_text(
        "Name: prefect\nVersion: 3.6.21\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "old"))
    found = findings(project, 1)["libraries"]
    assert found["found"].startswith("prefect 3.6.21")
    assert found["mend"].startswith("pip install 'prefect<")


def test_a_git_that_does_not_know_who_commits_is_a_warning(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for key in ("user.name", "user.email"):
        run(project.root, "git", "config", "--unset", key)
    run(project.root, "git", "config", "user.useConfigOnly", "true")
    found = findings(project, 0)["git"]
    assert found["state"] == "warning"
    assert "git config --global user.name" in found["mend"]


def test_wrong_parameters_are_wrong_on_one_line(project: Project) -> None:
    project.set(count__pattrn="gpt2", train_vocab__vocab_size=3)
    found = findings(project, 1)["params.yaml"]
    assert "count.pattrn" in found["found"]
    assert "train_vocab.vocab_size" in found["found"]
    assert "\n" not in found["found"]


def test_a_project_without_documents_is_warned_of(project: Project) -> None:
    shutil.rmtree(project.root / "data/raw")
    assert findings(project, 0)["documents"]["state"] == "warning"


def test_documents_that_a_build_could_not_use_are_wrong(project: Project) -> None:
    (project.root / "data/raw/z.jsonl").symlink_to("nothing")
    assert findings(project, 1)["documents"]["state"] == "wrong"


def test_too_little_room_for_what_becomes_of_the_documents_is_a_warning(project: Project) -> None:
    with (project.root / "data/raw/large.txt").open("wb") as file:
        file.truncate(3 * shutil.disk_usage(project.root).free)  # takes no room itself
    found = findings(project, 0)["documents"]
    assert found["state"] == "warning"
    assert "make room" in found["mend"]


def test_a_file_that_git_ignores_or_does_not_hold_is_named(project: Project) -> None:
    run(project.root, "git", "rm", "-q", "--cached", "dvc.lock")
    assert findings(project, 0)["dvc.lock"]["state"] == "warning"
    with (project.root / ".gitignore").open("a", encoding="utf-8") as file:
        file.write("*.lock\n")
    found = findings(project, 1)
    assert [found[name]["state"] for name in ("dvc.lock", "tokenmill.lock")] == ["wrong", "wrong"]
    assert "git-ignored" in found["DVC"]["found"]


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "tokenmill.lock: Invalid JSON"), ('{"tokenizr": null}', "tokenmill.lock: tokenizr: Extra")],
)
def test_a_lock_that_cannot_be_read_is_wrong(project: Project, content: str, words: str) -> None:
    (project.root / "tokenmill.lock").write_text(content, encoding="utf-8")
    found = findings(project, 1)["tokenmill.lock"]
    assert found["state"] == "wrong"
    assert words in found["found"]


def test_a_remote_that_does_not_answer_is_wrong_and_none_is_a_warning(project: Project) -> None:
    with socket.socket() as unheard:  # bound, and nobody listens: the port stays free meanwhile
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}/store"
        project.dvc("remote", "modify", "store", "url", url)
        found = findings(project, 1)["DVC remote"]
    assert "refused" in found["found"]
    (project.root / "file").write_text("", encoding="utf-8")
    project.dvc("remote", "modify", "store", "url", str(project.root / "file/store"))
    assert "cannot be written to" in findings(project, 1)["DVC remote"]["found"]
    project.dvc("remote", "remove", "store")
    found = findings(project, 0)["DVC remote"]
    assert (found["state"], found["mend"]) == ("warning", "dvc remote add -d NAME URL")


def test_a_site_cache_that_others_can_write_to_is_wrong(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "shared"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(open_to_all))
    found = findings(project, 1)["site cache"]
    assert f"chmod 700 {open_to_all}" in found["mend"]
    open_to_all.chmod(0o700)
    assert findings(project, 0)["site cache"]["state"] == "ok"


def test_a_clone_gets_a_private_site_cache_and_is_told(project: Project) -> None:
    (project.root / ".dvc/config.local").unlink()
    assert "was /var/tmp/dvc" in findings(project, 0)["site cache"]["found"]
    assert findings(project, 0)["site cache"]["state"] == "ok"
    (project.root / ".dvc/tmp/site-cache").chmod(0o777)
    assert "was open to other users" in findings(project, 0)["site cache"]["found"]
    assert findings(project, 0)["site cache"]["state"] == "ok"


def test_what_a_killed_build_left_is_a_warning(project: Project) -> None:
    (project.root / "data/counts.4000000-1.partial").mkdir()
    assert "data/counts.4000000-1.partial" in findings(project, 0)["leftovers"]["found"]


def test_a_folder_that_is_no_repository_is_told_how_to_become_one(project: Project) -> None:
    shutil.move(project.root / ".dvc", project.root / "dvc")
    assert "not a DVC repository. Run `git init && dvc init` there." in findings(project, 1)["DVC"]["found"]
    shutil.rmtree(project.root / ".git")
    assert findings(project, 1)["git repository"]["mend"] == "git init"


@pytest.mark.parametrize("ending", ["", "0000"], ids=["nobody listens", "no such port"])
def test_a_server_of_prefect_that_does_not_answer_is_wrong(
    project: Project, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}{ending}/api"
        monkeypatch.setenv("PREFECT_API_URL", url)
        found = findings(project, 1)["Prefect"]
    assert found["state"] == "wrong"
    assert found["found"].startswith(f"PREFECT_API_URL: no Prefect server answers at {url} (")


def test_a_server_that_the_environment_names_is_asked_without_importing_prefect(project: Project) -> None:
    script = (
        "import sys, threading\n"
        "from http.server import BaseHTTPRequestHandler, HTTPServer\n"
        "from tokenmill.project.doctor import prefect_server\n"
        "class Healthy(BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200 if self.path == '/api/health' else 404)\n"
        "        self.end_headers()\n"
        "        self.wfile.write(b'true')\n"
        "import os\n"
        "server = HTTPServer(('127.0.0.1', 0), Healthy)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "os.environ['PREFECT_API_URL'] = f'http://127.0.0.1:{server.server_port}/api'\n"
        "print(prefect_server().found, 'prefect' in sys.modules)\n"
    )
    done = project.run(sys.executable, "-c", script)
    assert done.stdout.strip().endswith("/api answers False"), done.stderr


def test_small_documents_have_a_size_in_a_fitting_unit(project: Project) -> None:
    found = findings(project, 0)
    assert found["documents"]["found"].startswith("1 file, about 39 bytes of text; ")
    assert found["text"]["found"] == "the first documents of 1 file can be read"


def refusal(project: Project) -> str:
    """The message of a build that does not begin."""
    project.set(run__engine="inline")
    done = cli(project, "build")
    assert done.returncode == 2
    return done.stderr.partition("]: ")[2].strip()


def test_a_wrong_text_column_is_found_without_a_build_in_the_words_of_a_build(project: Project) -> None:
    project.write("b.jsonl", ["x"] * 100)
    project.set(source__text_column="body")
    found = findings(project, 1)["text"]
    assert found["state"] == "wrong"
    assert found["found"] == refusal(project)
    assert "data/raw/b.jsonl, line 1: the key 'body' is missing" in found["found"]
    assert "Set source.text_column in params.yaml" in found["found"]


def test_what_a_build_leaves_out_is_a_warning(project: Project) -> None:
    project.write("b.jsonl", ["x"] * 100)
    project.set(source__text_column="body", source__on_bad_document="quarantine")
    found = findings(project, 0)["text"]
    assert found["state"] == "warning"
    assert found["found"] == (
        "2 of 2 files begin with something bad; data/raw/a.jsonl, line 1: the key 'body' is missing; found the keys id, text"
    )
    assert found["mend"].startswith("Set source.text_column")


def test_folders_with_other_columns_get_an_example_that_a_build_takes(project: Project) -> None:
    path = project.root / "data/raw/Code"
    path.mkdir()
    pq.write_table(pa.table({"id": ["a"], "content": ["import a"], "size": [8]}), path / "a.parquet")
    project.write("web/b.jsonl", ["the dog"])
    found = findings(project, 1)["text"]
    assert "the column 'text' is missing" in found["found"]
    example = re.search("`(sources: {.*})` into", found["mend"])
    assert example is not None
    assert 'code: {glob: "data/raw/Code/**/*", text_column: "content"}' in example[1]
    params = project.root / "params.yaml"
    text = params.read_text(encoding="utf-8")
    params.write_text(text.replace("sources: {}", example[1]), encoding="utf-8")
    assert findings(project, 0)["text"]["found"] == "the first documents of 3 files can be read"


def test_a_clone_without_its_documents_is_told_to_pull_them(project: Project) -> None:
    for glob in ("data/raw/**/*", "data/raw/web/*.jsonl"):
        project.set(source__glob=glob)
        shutil.rmtree(project.root / "data/raw", ignore_errors=True)
        (project.root / "data/raw.dvc").write_text("outs:\n- md5: 00.dir\n  path: raw\n", encoding="utf-8")
        assert (
            "data/raw is tracked by DVC and not downloaded. Run `dvc pull`."
            in findings(project, 0)["documents"]["found"]
        )
        (project.root / "data/raw").mkdir()
        (project.root / "data/raw/.gitignore").touch()
        assert "Run `dvc pull`." in findings(project, 0)["documents"]["found"]


def test_a_bad_document_or_file_is_found_without_a_build(project: Project) -> None:
    path = project.root / "data/raw/b.jsonl.gz"
    path.write_bytes(b"not gzip")
    assert findings(project, 1)["text"]["found"].startswith("data/raw/b.jsonl.gz: the file is damaged")
    path.unlink()
    with (project.root / "data/raw/a.jsonl").open("a", encoding="utf-8") as file:
        file.write("no JSON\n")
    found = findings(project, 1)["text"]["found"]
    assert found.startswith("data/raw/a.jsonl, line 2: invalid JSON")
    assert found == refusal(project)


def test_a_setting_that_a_build_refuses_is_told_in_its_words(project: Project) -> None:
    project.set(encode__formats=["megatron"], encode__pack={"length": 64, "mode": "best_fit"})
    found = findings(project, 1)["settings"]
    assert found["state"] == "wrong" and found["found"].startswith("encode.formats: megatron: ")
    assert found["found"] == refusal(project)
