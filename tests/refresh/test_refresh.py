"""A refresh brings new data, builds with the pinned tokenizer, judges drift, and publishes what changed."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import gethostname
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from tests.builders.prefect_server import Server, end, prefect_home
from tests.builders.teams import Team, cli, commit, copied, make_team, run
from tests.conftest import DOCUMENTS, REPOSITORY, Project, new_project
from tests.times import PATIENCE_S
from tokenmill import Counter
from tokenmill.storage.lock import project_lock


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A team whose project takes the tokenizer that it published itself."""
    folder = tmp_path_factory.mktemp("pinned")
    team = make_team(new_project.__wrapped__(folder)("project"))  # type: ignore[attr-defined]
    done = cli(team.project, "publish", "tokenizer@v1.0.0")
    assert done.returncode == 0, done.stderr
    team.project.set(tokenizer={"from": ".", "name": "tokenizer", "version": "v1.0.0"})
    done = cli(team.project, "build")
    assert done.returncode == 0, done.stderr
    commit(team.project)
    return team


@pytest.fixture
def team(pinned: Team, tmp_path: Path) -> Team:
    return copied(pinned, tmp_path / "team")


def refresh(project: Project) -> str:
    """Runs `tokenmill refresh`, and expects it to end well."""
    done = cli(project, "refresh")
    assert done.returncode == 0, done.stderr
    return done.stderr


def refused(project: Project) -> str:
    done = cli(project, "refresh")
    assert done.returncode == 2
    return done.stderr


@pytest.mark.parametrize("given", [(), ("COMMITTER",), ("AUTHOR",)])
def test_without_a_name_for_git_it_ends_before_it_begins(
    team: Team, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for role in given:
        monkeypatch.setenv(f"GIT_{role}_NAME", "Team")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "team@example.org")
    run(team.project.root, "git", "config", "--remove-section", "user")
    before = team.project.outputs()
    assert "git: has no name and address for commits and tags" in refused(team.project)
    assert team.project.outputs() == before


def versions(team: Team) -> list[str]:
    return [tag for tag in run(team.bare, "git", "tag").split() if tag.startswith("dataset@")]


@pytest.mark.slow
def test_new_shards_give_the_next_patch_version_and_nothing_new_gives_none(team: Team) -> None:
    assert "published dataset@v0.1.0" in refresh(team.project)
    assert "nothing new" in refresh(team.project)
    team.project.write("new.jsonl", ["Ы", "Ы", "cat"])
    said = refresh(team.project)
    assert "drift of the new text is not judged: 7 bytes; refresh.drift_bytes_min is 100,000" in said
    assert "published dataset@v0.1.1" in said
    assert "nothing new" in refresh(team.project)
    assert versions(team) == ["dataset@v0.1.0", "dataset@v0.1.1"]
    assert run(team.project.root, "git", "status", "--porcelain") == ""
    other = team.clone("other")
    done = cli(other, "fetch", "dataset@v0.1.1", "got")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((other.root / "got/manifest.json").read_text(encoding="utf-8"))
    assert manifest["n_documents"] == 9
    assert manifest["tokenizer_origin"]["version"] == "v1.0.0"


@pytest.mark.slow
def test_new_documents_of_a_named_source_are_read_by_its_columns(team: Team) -> None:
    raw = team.project.root / "data/raw/more"
    raw.mkdir()
    pq.write_table(pa.table({"path": ["x", "y"], "body": ["the cat and the dog", "a mat"]}), raw / "1.parquet")
    own = {"glob": "data/raw/more/*", "text_column": "body", "id_column": "path"}
    team.project.set(sources__more=own, sources__old={"glob": "data/raw/*.jsonl"}, refresh__on_drift="candidate")
    team.project.set(
        refresh__drift_max=1e-9, refresh__drift_bytes_min=0
    )  # so that the candidate is counted and compared by sources, too
    commit(team.project)
    said = refresh(team.project)
    assert (
        "published dataset@v0.1.0" in said and "more" in said.split("the tokenizer in use beside the candidate", 1)[1]
    )
    manifest = json.loads((team.project.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))
    assert [(one["name"], one["n_documents"]) for one in manifest["sources"]] == [("more", 2), ("old", 6)]


@pytest.mark.slow
def test_drift_fails_and_fails_again_until_someone_decides(team: Team) -> None:
    refresh(team.project)
    head = run(team.project.root, "git", "rev-parse", "HEAD")
    with team.project.write("new.jsonl", ["кот и пёс сидят на мельнице у реки"] * 3).open("a") as file:
        file.write("no JSON\n")
    team.project.set(refresh__drift_bytes_min=100, refresh__quarantine_max=0.2)
    team.project.set(source__on_bad_document="quarantine", source__bad_documents_max=1)
    commit(team.project)
    for is_committed in (False, False, True):
        if is_committed:
            commit(team.project, "Commit dvc.lock, too, as `git commit -a` does")
        said = refused(team.project)
        assert "bytes per token: 1.0" in said
        assert "Cyrillic 100.0% of the characters" in said
        assert "in the quarantine: 1 of 4 documents (25.0%; refresh.quarantine_max is 20.0%)" in said
        assert versions(team) == ["dataset@v0.1.0"]
        assert ("`git checkout -- data/raw.dvc dvc.lock && dvc checkout`" in said) == (not is_committed)
    team.project.set(refresh__on_drift="candidate", count__count_min=3, train_vocab__pad_vocab_to=100)
    run(team.project.root, "git", "add", "params.yaml")
    run(team.project.root, "git", "commit", "-q", "-m", "Decide")
    said = refresh(team.project)
    assert "a candidate trained on all documents" in said
    assert "the tokenizer in use stays" in said
    assert "data/raw Cyrillic" in said
    assert "published dataset@v0.1.1" in said
    assert json.loads((team.project.root / ".tokenmill/candidate/comparison.json").read_text(encoding="utf-8"))[
        "ids_differ"
    ]
    candidate = json.loads((team.project.root / ".tokenmill/candidate/card.json").read_text(encoding="utf-8"))
    counter = Counter("gpt2")
    counter.update(
        [text for texts in DOCUMENTS.values() for text in texts] + ["кот и пёс сидят на мельнице у реки"] * 3
    )
    counts = counter.finish()["count"].to_pylist()
    assert candidate["training"]["n_pretokens_distinct"] == sum(count >= 3 for count in counts) < len(counts)
    assert candidate["vocab_size"] == 300
    pin = json.loads((team.project.root / "tokenmill.lock").read_text(encoding="utf-8"))["tokenizer"]
    report = json.loads((team.project.root / "data/report/report.json").read_text(encoding="utf-8"))
    assert report["tokenizer_digest"] == pin["digest"]
    assert head != run(team.project.root, "git", "rev-parse", "HEAD")


@pytest.mark.slow
def test_after_a_refused_refresh_the_commands_that_it_names_go_back(team: Team) -> None:
    refresh(team.project)
    team.project.set(refresh__drift_bytes_min=0)
    commit(team.project)
    before = team.project.outputs()
    team.project.write("new.jsonl", ["кот и пёс сидят на мельнице у реки"] * 3)
    said = refused(team.project)
    assert team.project.outputs() != before
    [command] = re.findall("`(git checkout .*)`", said)
    done = team.project.run("sh", "-c", command)
    assert done.returncode == 0, done.stderr
    assert run(team.project.root, "git", "status", "--porcelain") == ""
    assert team.project.outputs() == before
    assert cli(team.project, "status").returncode == 0


def test_a_refresh_that_finds_one_at_work_skips_and_says_so(team: Team) -> None:
    with project_lock(team.project.root, wait=False, clean=lambda: None):
        script = "import sys; from tokenmill.cli.main import main; sys.exit(main(['refresh']))"
        done = team.project.run(sys.executable, "-c", script)
    assert done.returncode == 0
    assert f"refresh: skipped: {team.project.root}: process {os.getpid()} on " in done.stderr
    assert "--wait" not in done.stderr
    assert versions(team) == []


@pytest.mark.slow
def test_of_two_refreshes_started_at_once_one_publishes_and_the_other_skips_or_finds_nothing(
    team: Team, tmp_path: Path
) -> None:
    run(team.project.root, "git", "push", "-q", "-u", "origin", "HEAD")
    rounds = 2
    for i in range(rounds):
        team.project.write(f"new-{i}.jsonl", ["the cat and the new dog"] * (i + 1))
        logs = [tmp_path / "one.txt", tmp_path / "other.txt"]
        with (
            started(team.project, logs[0], "tokenmill", "refresh") as one,
            started(team.project, logs[1], "tokenmill", "refresh") as other,
        ):
            codes = [one.wait(200), other.wait(200)]
        said = sorted((log.read_text(encoding="utf-8") for log in logs), key=lambda text: "published" in text)
        assert codes == [0, 0], said
        assert "refresh: skipped: " in said[0] or "refresh: nothing new" in said[0], said
        assert f"refresh: published dataset@v0.1.{i}" in said[1], said
        assert versions(team) == [f"dataset@v0.1.{j}" for j in range(i + 1)]
    assert run(team.project.root, "git", "status", "--porcelain") == ""
    other_clone = team.clone("other")
    for i in range(rounds):
        done = cli(other_clone, "fetch", f"dataset@v0.1.{i}", f"got-{i}")
        assert done.returncode == 0, done.stderr
        manifest = json.loads((other_clone.root / f"got-{i}/manifest.json").read_text(encoding="utf-8"))
        assert manifest["n_documents"] == 6 + (i + 1) * (i + 2) // 2
    other_clone.dvc("pull")
    assert cli(other_clone, "status").returncode == 0


def test_a_refresh_without_a_pinned_tokenizer_is_refused(project: Project) -> None:
    assert "would train another tokenizer" in refused(project)


def test_changes_that_are_not_its_own_are_not_committed(team: Team) -> None:
    (team.project.root / "note.txt").write_text("x", encoding="utf-8")
    assert "not committed: note.txt" in refused(team.project)


def test_a_branch_that_is_behind_its_upstream_is_refused_before_any_work(team: Team) -> None:
    run(team.project.root, "git", "push", "-q", "-u", "origin", "HEAD")
    other = team.clone("other")
    (other.root / "note.txt").write_text("x", encoding="utf-8")
    commit(other)
    team.project.write("new.jsonl", ["the cat and the new dog"])
    said = refused(team.project)
    assert "its branch is behind its upstream (commits: 1)" in said
    assert "started" not in said
    run(team.project.root, "git", "pull", "-q")
    assert "published dataset@v0.1.0" in refresh(team.project)
    assert run(team.bare, "git", "rev-parse", "HEAD") == run(team.project.root, "git", "rev-parse", "HEAD")


@pytest.mark.slow
def test_an_import_is_updated_and_a_failed_update_leaves_the_data(team: Team, tmp_path: Path) -> None:
    producer = Project(tmp_path / "producer")
    producer.root.mkdir()
    run(producer.root, "git", "init", "-q")
    producer.dvc("init")
    producer.dvc("remote", "add", "-d", "store", str(tmp_path / "producer-store"))
    (producer.root / "docs.jsonl").write_text('{"id": "1", "text": "the cat"}\n', encoding="utf-8")

    def release(push: bool) -> None:
        producer.dvc("add", "docs.jsonl")
        run(producer.root, "git", "add", "-A")
        run(producer.root, "git", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "x")
        if push:
            producer.dvc("push")

    release(push=True)
    project = team.project
    project.dvc("remove", "data/raw.dvc")
    done = project.run("dvc", "import", "-q", str(producer.root), "docs.jsonl", "-o", "data/raw/docs.jsonl")
    assert done.returncode == 0, done.stderr
    (project.root / "data/raw/.gitignore").unlink(missing_ok=True)
    with (project.root / ".gitignore").open("a", encoding="utf-8") as file:
        file.write("/data/raw/*.jsonl\n/data/.gitignore\n/data/raw/.gitignore\n")
    (project.root / "data/.gitignore").unlink(missing_ok=True)
    commit(project)
    refresh(project)
    (producer.root / "docs.jsonl").write_text('{"id": "1", "text": "the dog"}\n', encoding="utf-8")
    release(push=True)
    assert "published dataset@v0.1.1" in refresh(project)
    assert "the dog" in (project.root / "data/raw/docs.jsonl").read_text(encoding="utf-8")
    (producer.root / "docs.jsonl").write_text('{"id": "1", "text": "the mat"}\n', encoding="utf-8")
    release(push=False)
    shutil.rmtree(producer.root / ".dvc/cache")
    (producer.root / "docs.jsonl").unlink()
    assert "`dvc update` failed" in refused(project)
    assert "the dog" in (project.root / "data/raw/docs.jsonl").read_text(encoding="utf-8")
    assert versions(team) == ["dataset@v0.1.0", "dataset@v0.1.1"]


class _Hook(BaseHTTPRequestHandler):
    """A webhook that keeps what it is sent."""

    received: ClassVar[list[Any]] = []
    answer: ClassVar[int] = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append(json.loads(body))
        self.send_response(self.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def hook() -> Iterator[HTTPServer]:
    """A webhook on this machine."""
    listening = HTTPServer(("127.0.0.1", 0), _Hook)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    _Hook.received.clear()
    yield listening
    listening.shutdown()
    listening.server_close()


def save_block(project: Project, hook: HTTPServer, **env: str) -> None:
    """Saves the block custom-webhook/team, which tells the webhook, where `env` says, and names it in params.yaml."""
    block = (
        "from prefect.blocks.notifications import CustomWebhookNotificationBlock as Hook\n"
        f"Hook(name='team', url='http://127.0.0.1:{hook.server_port}/', allow_private_urls=True,\n"
        "     json_data={'subject': '{{subject}}', 'body': '{{body}}'}).save('team', overwrite=True)\n"
    )
    done = project.run(sys.executable, "-c", block, **env)
    assert done.returncode == 0, done.stderr
    project.set(refresh__notify="custom-webhook/team")


@pytest.fixture
def drifted(team: Team, server: Server, hook: HTTPServer) -> Project:
    """A project with a new shard past the limits of drift, whose refresh tells a webhook by a block of Prefect's own."""
    project = team.project
    save_block(project, hook, **server.environment)
    project.set(refresh__drift_bytes_min=0)
    project.write("new.jsonl", ["кот и пёс сидят на мельнице"])
    return project


@pytest.mark.slow
def test_a_failure_is_told_once_with_project_host_and_code_again_when_it_changes_and_when_it_is_over(
    team: Team, server: Server, hook: HTTPServer
) -> None:
    save_block(team.project, hook, **server.environment)
    commit(team.project)
    place = f"{team.project.root.resolve()} on {gethostname()}"

    def told(code: int) -> list[tuple[str, str]]:
        """The notices of one more refresh, which ends with `code`."""
        n = len(_Hook.received)
        done = team.project.run("tokenmill", "refresh", **server.environment)
        assert done.returncode == code, done.stderr
        return [(one["subject"], one["body"]) for one in _Hook.received[n:]]

    def failure(name: str) -> tuple[str, str]:
        (team.project.root / name).write_text("x", encoding="utf-8")
        words = f"{team.project.root}: not committed: {name}. Commit them, and refresh again."
        return "tokenmill refresh failed", f"{place}: error[TM401]: {words}"

    first = failure("note.txt")
    assert told(2) == [first]
    assert told(2) == []
    (team.project.root / "note.txt").unlink()
    other = failure("other.txt")
    assert told(2) == [other]
    (team.project.root / "other.txt").unlink()
    assert told(0) == [("tokenmill refresh works again", f"{place}: published dataset@v0.1.0")]
    assert told(0) == []
    again = failure("other.txt")
    assert told(2) == [again]


@pytest.mark.slow
def test_a_notice_that_the_service_refuses_is_said_to_be_unsent_and_sent_again(
    team: Team, server: Server, hook: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = (
        "from prefect.blocks.notifications import MattermostWebhook as Hook\n"
        f"Hook(hostname='127.0.0.1', port={hook.server_port}, secure=False, token='a' * 24).save('team')\n"
    )
    project = team.project
    assert project.run(sys.executable, "-c", block, **server.environment).returncode == 0
    project.set(refresh__notify="mattermost-webhook/team")  # not committed, so a refresh fails
    monkeypatch.setattr(_Hook, "answer", 404)
    done = project.run("tokenmill", "refresh", **server.environment)
    assert "notification mattermost-webhook/team: could not be sent: " in done.stderr
    assert "404" in done.stderr
    n = len(_Hook.received)
    monkeypatch.setattr(_Hook, "answer", 200)
    for _ in range(2):
        done = project.run("tokenmill", "refresh", **server.environment)
        assert "could not be sent" not in done.stderr
        assert len(_Hook.received) == n + 1


@pytest.mark.slow
def test_a_block_that_the_builds_own_server_does_not_know_is_told_with_the_home_to_save_it_in(
    project: Project, hook: HTTPServer, tmp_path: Path, prefect_database: Path
) -> None:
    own = project.root / ".tokenmill/prefect"
    own.parent.mkdir()
    prefect_home(own, prefect_database)
    account = {"HOME": str(tmp_path)}
    project.set(refresh__notify="custom-webhook/team")
    done = project.run("tokenmill", "refresh", **account)
    assert "notification custom-webhook/team: could not be sent: " in done.stderr
    assert f"PREFECT_HOME={own}" in done.stderr and "PREFECT_HOME=~/.prefect" in done.stderr
    save_block(project, hook, PREFECT_HOME=str(own), **account)
    done = project.run("tokenmill", "refresh", **account)
    assert "could not be sent" not in done.stderr
    assert ["error[TM100]" in one["body"] for one in _Hook.received] == [True]
    assert not (tmp_path / ".prefect/prefect.db").exists()


@contextmanager
def started(project: Project, log: Path, *command: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of the environment at work in the project's folder while the block runs; what it says goes to `log`."""
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [str(binaries / command[0]), *command[1:]],
            cwd=project.root,
            env=environment | env,
            stdout=file,
            stderr=file,
        )
    try:
        yield process
    finally:
        end(process)


@pytest.mark.slow
def test_a_served_refresh_fires_at_its_time_and_tells_a_webhook_of_drift(
    drifted: Project, server: Server, team: Team, tmp_path: Path
) -> None:
    commit(drifted)
    log = tmp_path / "serve.txt"
    with started(drifted, log, "tokenmill", "serve", "--cron", "* * * * *", **server.environment) as served:
        _until(lambda: "failed" in log.read_text(encoding="utf-8"), served, log)
        assert versions(team) == []
        drifted.set(refresh__on_drift="candidate")
        run(drifted.root, "git", "commit", "-q", "-m", "Decide", "params.yaml")
        _until(lambda: "tokenmill refresh: drift" in [one["subject"] for one in _Hook.received], served, log)
        served.terminate()
        served.wait(60)
    assert served.returncode == 143
    assert "Traceback" not in log.read_text(encoding="utf-8")
    assert _Hook.received[0]["subject"] == "tokenmill refresh failed"
    assert f"{drifted.root.resolve()} on {gethostname()}: error[TM502]: " in _Hook.received[0]["body"]
    assert "Cyrillic" in _Hook.received[0]["body"]
    drifts = [one["body"] for one in _Hook.received if one["subject"] == "tokenmill refresh: drift"]
    assert ["Cyrillic" in body for body in drifts] == [True]
    assert versions(team) == ["dataset@v0.1.0"]


@pytest.mark.slow
def test_deployments_run_on_schedule_skip_while_a_build_is_at_work_and_tell_a_webhook_of_failure(
    drifted: Project, server: Server, team: Team, tmp_path: Path
) -> None:
    """Server, work pool, worker, and the deployments of prefect.yaml, the nightly one every ten seconds."""
    drifted.set(run__engine="threads")
    yaml = YAML(typ="safe", pure=True)
    deployed = yaml.load((REPOSITORY / "prefect.yaml").read_text(encoding="utf-8"))
    deployed["deployments"][0]["schedules"] = [{"interval": 10}]
    with (drifted.root / "prefect.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(deployed, file)
    commit(drifted)
    log = tmp_path / "worker.txt"
    worker = ("prefect", "worker", "start", "--pool", "tokenmill", "--type", "process")
    env = {**server.environment, "PWD": str(drifted.root), "PREFECT_WORKER_QUERY_SECONDS": "2"}
    with started(drifted, log, *worker, **env) as process:
        _until(lambda: server.post("work_pools/filter", {}), process, log)
        done = drifted.run("prefect", "--no-prompt", "deploy", "--all", **env)
        assert done.returncode == 0, done.stderr
        nightly, on_demand = (
            server.post("deployments/filter", {"deployments": {"name": {"any_": [name]}}})[0]["id"]
            for name in ("nightly", "on-demand")
        )
        with project_lock(drifted.root, wait=False, clean=lambda: None):
            _until(lambda: "Skipped" in _states(server, nightly), process, log)
            server.post(f"deployments/{nightly}/pause_deployment", {})

        def failed() -> bool:
            """Whether a run on demand failed; one that a last nightly run made skip is asked for again."""
            states = _states(server, on_demand)
            if states <= {"Skipped"}:
                server.post(f"deployments/{on_demand}/create_flow_run", {})
            return "Failed" in states

        _until(failed, process, log)
        _until(lambda: _Hook.received, process, log)  # told when the server knows
    assert _Hook.received[0]["subject"] == "tokenmill refresh failed"
    assert f"{drifted.root.resolve()} on {gethostname()}: error[TM502]: " in _Hook.received[0]["body"]
    assert "Cyrillic" in _Hook.received[0]["body"]
    assert versions(team) == []


def _states(server: Server, deployment: str) -> set[str]:
    runs = server.post("flow_runs/filter", {"flow_runs": {"deployment_id": {"any_": [deployment]}}})
    return {run["state"]["name"] for run in runs}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cron", "x"], "found 1 field. Expected five fields"),
        (["--cron", "0 2 * * * *"], "found 6 fields. Expected five fields"),
        (["--cron", "0 2 * * *  *  *"], "found 7 fields. Expected five fields"),
        (["--cron", "0 2 * * 9"], "Expected five fields"),
        (["--cron", "0 2 * * *", "--timezone", "Mars/Base"], "no such time zone"),
        (["--cron", "0 2 * * *", "--timezone", "Europe"], "no such time zone"),
    ],
)
def test_a_schedule_that_is_none_is_refused(team: Team, arguments: list[str], words: str) -> None:
    done = cli(team.project, "serve", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def _until(is_so: Any, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert process.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
        time.sleep(0.5)
