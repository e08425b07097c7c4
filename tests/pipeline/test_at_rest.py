"""A build records nothing if parameters or shards changed while it ran, and refuses shards whose changes DVC would not see."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.builders.rounds import CallTask, driven
from tests.conftest import Project
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.start import start
from tokenmill.rounds import Round, do
from tokenmill.stages.count_sums import SumFacts
from tokenmill.summary import StageSummary

Change = Callable[[Project], object]


def build_of(project: Project) -> Build:
    return start(project.root / "params.yaml", "count", False, False)


def stage_that(change: Change, project: Project) -> Callable[[Build], StageSummary]:
    def run(_build: Build) -> StageSummary:
        counts = project.root / "data/counts"
        counts.mkdir(parents=True)
        (counts / "counts.parquet").touch()
        change(project)
        return StageSummary("count", "run")

    return run


@pytest.mark.parametrize(
    ("under_dvc", "change", "error"),
    [
        *(
            (under_dvc, change, error)
            for under_dvc in (False, True)
            for change, error in (
                (lambda project: project.set(count__pattern="o200k"), ParamsError),
                (lambda project: project.write("a.jsonl", ["other"]), CorpusError),
                (lambda project: (project.root / "data/raw/b.jsonl").unlink(), CorpusError),
            )
        ),
        # DVC itself would record the hash of a folder with a file that the stage has not read; see test_arrivals.py.
        (True, lambda project: project.write("c.jsonl", ["new"]), CorpusError),
    ],
)
def test_a_stage_whose_inputs_change_fails_whoever_runs_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, under_dvc: bool, change: Change, error: type[Exception]
) -> None:
    if under_dvc:
        monkeypatch.setenv("DVC_STAGE", "count")
    with pytest.raises(error, match="changed while"):
        build_of(project).stage("count", stage_that(change, project))
    assert not (project.root / "dvc.lock").exists()


def test_parameters_that_changed_since_the_build_began_stop_it_before_a_stage(project: Project) -> None:
    build = build_of(project)
    project.set(train_vocab__vocab_size=270)
    with pytest.raises(ParamsError, match="changed while the build ran"):
        build.stage("count", stage_that(lambda _: None, project))


def test_a_shard_that_grew_after_it_was_found_stops_the_build(project: Project) -> None:
    build = build_of(project)
    assert build.shards
    project.write("a.jsonl", ["other"])
    with pytest.raises(CorpusError, match="changed while the build ran"):
        build.stage("count", stage_that(lambda _: None, project))


def test_how_a_build_runs_may_change_meanwhile(project: Project) -> None:
    build = build_of(project)
    build.stage("count", stage_that(lambda project: project.set(run__workers=1), project))
    assert [summary.action for summary in build.summaries] == ["run"]


def test_a_shard_behind_a_linked_folder_is_refused_even_when_all_is_up_to_date(project: Project) -> None:
    project.build()
    outside = project.root.parent / "elsewhere"
    outside.mkdir()
    (project.root / "data/raw/a.jsonl").rename(outside / "c.jsonl")
    (project.root / "data/raw/a.jsonl").symlink_to(outside / "c.jsonl")
    project.build()  # a linked file is fine
    (project.root / "data/raw/link").symlink_to(outside)
    done = project.cli("build")
    assert done.returncode == 2
    assert "data/raw/link/c.jsonl" in done.stderr
    assert "Link the files instead" in done.stderr


def test_a_shard_that_dvc_ignores_is_refused(project: Project) -> None:
    with (project.root / ".dvcignore").open("a", encoding="utf-8") as file:
        file.write("data/raw/b.jsonl\n")
    done = project.cli("build")
    assert done.returncode == 2
    assert ".dvcignore leaves it out" in done.stderr


@pytest.mark.slow
def test_a_prefect_server_that_does_not_answer_is_named(project: Project) -> None:
    project.set(run__engine="threads")
    done = project.run("tokenmill", "build", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert done.returncode == 2
    assert "no Prefect server answers at http://127.0.0.1:9/api" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("not a url", "answers at not a url (UnsupportedProtocol)"),
        ("127.0.0.1:4200/api", "(UnsupportedProtocol)"),
        ("http://127.0.0.1:x/api", "answers at http://127.0.0.1:x/api (InvalidURL)"),
        ("http:///api", "(UnsupportedProtocol)"),
        ("{web}", "answers at {web} (200, 'fine')"),
        pytest.param("{silent}/api", "answers at {silent}/api (ReadTimeout)", marks=pytest.mark.slow),
    ],
)
def test_what_is_wrong_with_the_address_of_prefects_server_is_said(project: Project, url: str, words: str) -> None:
    project.set(run__engine="threads")
    with somebody() as web, socket.create_server(("127.0.0.1", 0)) as listening:
        places = {"web": web, "silent": f"http://127.0.0.1:{listening.getsockname()[1]}"}
        done = project.run("tokenmill", "build", PREFECT_API_URL=url.format(**places))
    assert done.returncode == 2
    assert words.format(**places) in done.stderr
    assert "Traceback" not in done.stderr
    assert "set run.engine: inline" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "url",
    ["http://u:secret@127.0.0.1:9/api", "http://u:secret@127.0.0.1:x/api", "http://u:secret@{web}", "u:secret@{web}"],
)
def test_no_message_shows_the_password_of_prefects_server(project: Project, url: str) -> None:
    project.set(run__engine="threads")
    with somebody() as web:
        done = project.run("tokenmill", "build", PREFECT_API_URL=url.format(web=web.removeprefix("http://")))
    assert done.returncode == 2
    assert "PREFECT_API_URL: " in done.stderr
    assert url.startswith("u:") or " http://127.0.0.1:" in done.stderr.replace("'", " ")
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def somebody() -> Iterator[str]:
    """The address of a web server that answers all that it is asked, and is not Prefect."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"fine")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()


def test_a_unit_whose_input_changed_while_it_was_read_is_not_kept(project: Project) -> None:
    build = build_of(project)
    unit = build.project.units[0]
    change = CallTask(
        name="a",
        key="ab" * 32,
        unit=unit,
        seen=build.project.seen(unit),
        call=lambda _: project.write("a.jsonl", ["other"]),
    )
    with pytest.raises(CorpusError, match=r"a\.jsonl: changed while it was read"):
        driven(do(Round("count", [change], SumFacts)), project.root)
    assert build.store.find("ab" * 32, SumFacts) is None
