"""--json: one object on standard output, whatever the command and however it ends."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from tests.builders.teams import Said, cli
from tests.conftest import REPOSITORY, Project
from tests.times import PATIENCE_S
from tokenmill import errors
from tokenmill.cli import answer
from tokenmill.cli import main as cli_main
from tokenmill.cli.answer import SCHEMA, Answer, as_json
from tokenmill.console import console
from tokenmill.error_pages import error_pages
from tokenmill.errors import BusyError, CorpusError, ParamsError, VersionsError


def result(done: Any, command: str | None, code: int = 0) -> Any:
    """What the one object on standard output has as its result."""
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["schema", "command", "ok", "result"]
    assert (found["schema"], found["command"], found["ok"]) == (SCHEMA, command, True)
    return found["result"]


def error(done: Said, command: str | None, code: int = 2) -> dict[str, str]:
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["schema", "command", "ok", "error"]
    assert (found["schema"], found["command"], found["ok"]) == (SCHEMA, command, False)
    told: dict[str, str] = found["error"]
    assert {"code", "what", "where", "why", "fix"} <= told.keys()
    assert told["code"] in error_pages()
    assert all(told[name] for name in ("what", "why", "fix"))
    return told


@pytest.mark.slow
def test_what_commands_do_and_find_is_in_the_result(project: Project) -> None:
    assert result(cli(project, "status", "--json"), "status", 1)["would_run"] is True
    assert result(cli(project, "plan", "--json"), "plan")["quantities"]["documents"]["point"] == 6
    done = cli(project, "build", "--json")
    built = result(done, "build")
    assert built["up_to_date"] is False
    assert {one["stage"]: one["action"] for one in built["stages"]} == dict.fromkeys(
        ("count", "train-vocab", "encode", "validate"), "run"
    )
    assert "count: started" in done.stderr and "peak memory" in done.stderr
    assert result(cli(project, "build", "--json"), "build")["up_to_date"] is True
    assert result(cli(project, "plan", "--outcome", "--json"), "plan")["rows"][0]["is_inside"] is True
    standing = result(cli(project, "--json", "status"), "status")
    assert [one["would_run"] for one in standing["stages"]] == [False] * 4
    assert result(cli(project, "check", "data/tokenizer", "--json"), "check")["vocab_size"] == 272
    assert result(cli(project, "diff", *["data/tokenizer"] * 2, "--json"), "diff")["ids_differ"] is False
    assert {one["state"] for one in result(cli(project, "doctor", "--json"), "doctor")["checks"]} <= {"ok", "warning"}


def test_a_new_project_a_pin_and_help_are_results_too(tmp_path: Path) -> None:
    here = Project(tmp_path)
    assert result(cli(here, "--version", "--json"), None) == {"version": tokenmill.__version__}
    made = result(cli(here, "init", "new", "--json"), "init")
    assert "params.yaml" in made["files"]
    assert made["can_publish"] is True
    assert error(cli(here, "init", "new", "--json"), "init")["code"] == "TM111"
    assert "complete" in result(cli(here, "completion", "bash", "--json"), "completion")["script"]
    assert result(cli(here, "explain", "TM203", "--json"), "explain")["code"] == "TM203"


@pytest.mark.parametrize(
    ("arguments", "command", "code"),
    [
        (["build", "--forse"], "build", "TM001"),
        (["biuld"], "biuld", "TM001"),
        ([], None, "TM001"),
        (["fetch"], "fetch", "TM001"),
        (["serve"], "serve", "TM001"),
        (["build"], "build", "TM105"),
        (["status"], "status", "TM105"),
        (["plan"], "plan", "TM105"),
        (["pin"], "pin", "TM105"),
        (["refresh"], "refresh", "TM105"),
        (["publish", "tokenizer@v1.0.0"], "publish", "TM105"),
        (["serve", "--cron", "* * * * *"], "serve", "TM105"),
        (["fetch", "tokenizer", "x"], "fetch", "TM100"),
        (["fetch", "tokenizer@v1.0.0", "x"], "fetch", "TM401"),
        (["check", "none.json"], "check", "TM301"),
        (["diff", "one", "other"], "diff", "TM301"),
    ],
)
def test_every_error_is_an_object_with_a_code_and_a_message_for_people(
    tmp_path: Path, arguments: list[str], command: str | None, code: str
) -> None:
    (tmp_path / ".git").mkdir()  # what is above belongs to others
    done = cli(Project(tmp_path), *arguments, "--json")
    told = error(done, command)
    assert told["code"] == code
    assert f"tokenmill: error[{code}]: {told['message']}\n" in done.stderr
    assert cli(Project(tmp_path), "--json", *arguments).stdout == done.stdout


def test_only_the_object_is_on_standard_output_whatever_the_steps_print(project: Project) -> None:
    """A step of the project's own may print, and run programs that print."""
    script = """
import os, subprocess, sys
from tokenmill.cli import main as cli
from tokenmill.cli.answer import text
def run(asked):
    print("printed")
    subprocess.run(["echo", "by a child"])
    os.write(1, b"by the core")
    return text({"did": 1}, "as text")
cli.build._status = run
sys.exit(cli.main(["status", *sys.argv[1:]]))
"""
    done = project.run(sys.executable, "-c", script, "--json")
    assert result(done, "status") == {"did": 1}
    assert sorted(done.stderr.replace("core", "core\n").split("\n")) == ["", "by a child", "by the core", "printed"]
    assert project.run(sys.executable, "-c", script).stdout.endswith("as text\n")


@pytest.mark.slow
def test_a_build_in_prefect_prints_one_object(project: Project, tmp_path: Path) -> None:
    project.set(run__engine="threads")
    with (project.root / "flows/build.py").open("a", encoding="utf-8") as flow:
        flow.write('\nprint("a flow that prints")\n')
    done = project.run("tokenmill", "build", "--json", PREFECT_HOME=str(tmp_path / "prefect"))
    assert len(result(done, "build")["stages"]) == 4
    assert "a flow that prints" in done.stderr


@pytest.mark.parametrize(("number", "code", "told"), [("SIGINT", 130, "TM801"), ("SIGTERM", 143, "TM802")])
def test_a_command_that_a_signal_ends_prints_an_object(tmp_path: Path, number: str, code: int, told: str) -> None:
    script = f"""
import os, signal, sys, time
from tokenmill.cli import main as cli
def run(asked):
    os.kill(os.getpid(), signal.{number})
    time.sleep(60)
cli.build._status = run
sys.exit(cli.main(["status", "--json"]))
"""
    done = Project(tmp_path).run(sys.executable, "-c", script)
    assert error(done, "status", code)["code"] == told  # type: ignore[arg-type]


def test_a_defect_is_told_with_its_traceback_and_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_asked: Any) -> Answer:
        raise KeyError("no such thing")

    monkeypatch.setattr(cli_main.build, "_status", broken)
    done = cli(Project(tmp_path), "status", "--json")
    assert error(done, "status", 70)["code"] == "TM901"
    assert "Traceback" in done.stderr
    assert "tokenmill: error[TM901]: a defect of tokenmill: KeyError: 'no such thing'\n" in done.stderr


@pytest.mark.slow
def test_serve_prints_the_object_of_each_refresh_in_a_line(project: Project) -> None:
    command = [sys.executable, "-m", "tokenmill", "serve", "--cron", "* * * * *", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    serving = subprocess.Popen(
        command, cwd=project.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    try:
        first = json.loads(serving.stdout.readline())
        assert (first["command"], first["ok"]) == ("refresh", False)  # it would train a tokenizer
        time.sleep(0.1)
    finally:
        serving.send_signal(signal.SIGINT)
    rest, _ = serving.communicate(timeout=PATIENCE_S)
    assert serving.returncode == 130
    lines = [json.loads(line) for line in rest.splitlines()]
    assert (lines[-1]["command"], lines[-1]["error"]["code"]) == ("serve", "TM801")


def test_an_error_has_its_place_its_words_and_its_advice_apart() -> None:
    found = as_json(CorpusError("data/raw/a.jsonl, line 3", "no valid JSON.", "Mend it."))
    assert (found["where"], found["what"], found["fix"]) == ("data/raw/a.jsonl, line 3", "no valid JSON.", "Mend it.")
    assert found["message"] == "data/raw/a.jsonl, line 3: no valid JSON. Mend it."
    listed = as_json(ParamsError("", ["two:", "  a", "  b"], "Mend them."))
    assert (listed["where"], listed["what"], listed["fix"]) == (None, "two:\n  a\n  b", "Mend them.")
    assert listed["message"] == "two:\n  a\n  b\nMend them."
    busy = as_json(BusyError("process 3 is building this project.", "Wait: it may take long."))
    assert (busy["what"], busy["fix"]) == ("process 3 is building this project.", "Wait: it may take long.")


def test_an_error_without_advice_has_that_of_its_code() -> None:
    for kind in (CorpusError, ParamsError, VersionsError):
        found = as_json(kind("v1.2: it drifts. Then what?"))
        assert (found["where"], found["what"]) == (None, "v1.2: it drifts. Then what?")
        assert found["fix"] == error_pages()[kind.code].advice


def test_an_error_inside_another_place_keeps_its_parts() -> None:
    inner = CorpusError("row 3", "no text.", "Mend it.")
    found = as_json(VersionsError(*inner.inside("a.parquet")))
    assert (found["where"], found["what"], found["fix"]) == ("a.parquet: row 3", "no text.", "Mend it.")


def test_the_places_of_errors_in_the_sources_are_no_clauses() -> None:
    places = written_places()
    assert len(places) > 200
    clauses = re.compile(r"\b(is|are|has|have|was|gives?|holds?|expected|found|no longer)\b")
    assert [one for one in places if clauses.search(one)] == []


ERRORS = {name for name in dir(errors) if name.endswith("Error")} - {"BusyError", "ChatError", "UsageError"}
"""The errors whose first of several arguments is their place."""


def written_places() -> list[str]:
    """The place of each error in the sources that is made with its parts; values are left out."""
    found = []
    for path in Path(tokenmill.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ERRORS and len(node.args) > 1:
                parts = [one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant)]
                found.append("".join(map(str, parts)))
    return found


def test_the_remedy_of_a_list_of_files_is_apart(project: Project) -> None:
    project.set(source__text_column="body")
    told = error(cli(project, "build", "--json"), "build")
    assert (told["code"], told["where"]) == ("TM209", "source.text_column")
    assert told["what"].count("\n  data/raw/") == 2
    assert told["fix"].startswith("Set source.text_column")


def test_an_error_of_the_machine_names_the_file() -> None:
    found = as_json(OSError(28, "No space left on device", "/some/file"))
    assert (found["code"], found["where"]) == ("TM601", "/some/file")


def test_the_version_of_the_envelope_is_1() -> None:
    assert (answer.SCHEMA, console.level) == (1, 0)
