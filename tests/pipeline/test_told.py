"""What status, plan, build -v and doctor tell of a build is what the build then does, in each mode of a project."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.builds import units_done
from tests.builders.teams import Team, commit, make_team, run
from tests.conftest import Project, make_project

pytestmark = pytest.mark.slow

PINNED = {"from": ".", "name": "tokenizer", "version": "v1.0.0"}
OTHER_WORDS = ["zyzzy zyzzyva zyzzyvas zyzzy"] * 9  # which change the tokenizer


def result(project: Project, *arguments: str) -> Any:
    done = project.cli(*arguments, "--json")
    assert "result" in json.loads(done.stdout), done.stderr
    return json.loads(done.stdout)["result"]


def stages_told_and_run(project: Project) -> dict[str, str]:
    """Builds, after all have told what that will do. Gives what was done with each stage."""
    status = {one["stage"]: one["would_run"] for one in result(project, "status")["stages"]}
    plan = {one["stage"]: one for one in result(project, "plan")["stages"]}
    assert [one for one in result(project, "doctor")["checks"] if one["state"] == "wrong"] == []
    done = project.cli("build", "-v", "--json")
    assert done.returncode == 0, done.stderr
    summaries = {one["stage"]: one for one in json.loads(done.stdout)["result"]["stages"]}
    ran = {name: one["action"] not in ("up to date", "frozen") for name, one in summaries.items()}
    assert status == {name: one["would_run"] for name, one in plan.items()} == ran, done.stderr
    said = {
        line.partition(": ")[0] for line in done.stderr.splitlines() if ": to do: " in line or ": restored: " in line
    }
    assert {name for name in ran if name in said} == {name for name in ran if ran[name]}
    for name, one in plan.items():
        if (
            one["n_units"] is not None and summaries[name]["action"] != "restored"
        ):  # whether DVC has a run is not looked up
            n_done = units_done(done.stderr, name)
            n_units = summaries[name]["n_units"] or 0
            assert one["n_units_todo"] == (n_units if n_done == "all" else int(n_done.partition(" ")[0])), name
    return {name: one["action"] for name, one in summaries.items()}


def imported(project: Project) -> None:
    """Lets the project import a file that was made elsewhere."""
    other = make_project(project.root.parent / "other")
    other.build()
    shutil.copy(other.root / "data/tokenizer/tokenizer.json", project.root)
    project.set(tokenizer={"from": "tokenizer.json"})


def with_own_steps(project: Project) -> None:
    """Gives the project a step before tokenmill's stages, and one behind them."""
    with project.edited("dvc.yaml") as pipeline:
        own = {"cmd": "wc -c data/raw/a.jsonl > first.txt", "deps": ["data/raw"], "outs": ["first.txt"]}
        pipeline["stages"]["first"] = own
        own = {"cmd": "wc -c data/tokens/manifest.json > last.txt", "deps": ["data/tokens"], "outs": ["last.txt"]}
        pipeline["stages"]["last"] = own


def new_file(project: Project) -> None:
    project.write("new.jsonl", OTHER_WORDS)


def nothing(_: Project) -> None:
    """Changes nothing."""


def frozen(*stages: str) -> Callable[[Project], None]:
    return lambda project: project.dvc("freeze", *stages)


def setting(**changes: Any) -> Callable[[Project], None]:
    return lambda project: project.set(**changes)


def without(*folders: str) -> Callable[[Project], None]:
    return lambda project: [shutil.rmtree(project.root / folder) for folder in folders] and None


MODES: dict[str, list[Callable[[Project], None]]] = {
    "trained": [
        nothing,
        nothing,
        new_file,
        setting(encode__special_tokens_in_text="allow"),
        setting(count__count_min=2),
    ],
    "imported": [imported, nothing, new_file, setting(train_vocab__vocab_size=300), setting(count__count_min=2)],
    "imported after training": [nothing, imported, setting(encode__end_of_document=None)],
    "outputs deleted": [nothing, without("data/counts"), without("data/tokenizer", "data/tokens"), new_file],
    "outputs deleted, imported": [imported, without("data/counts", "data/tokenizer"), new_file],
    "frozen": [nothing, frozen("count"), new_file],
    "frozen, imported": [imported, frozen("train-vocab"), new_file],
    "own steps": [with_own_steps, nothing, new_file],
    "own steps, imported": [imported, with_own_steps, new_file],
}
"""The changes of a project, each of which is followed by a build, by the name of the mode."""


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_build_does_what_was_told_of_it(project: Project, mode: str) -> None:
    for change in MODES[mode]:
        change(project)
        actions = stages_told_and_run(project)
    assert "run" in actions.values() or mode in ("imported", "trained")


def test_with_a_pinned_tokenizer_a_new_file_is_the_only_unit_to_do(project: Project, tmp_path: Path) -> None:
    """In the project, and in clones after `dvc pull`."""
    team: Team = make_team(project)
    assert project.cli("publish", "tokenizer@v1.0.0").returncode == 0
    project.set(tokenizer=PINNED)
    assert stages_told_and_run(project) == {
        "count": "not needed",
        "train-vocab": "imported",
        "encode": "run",
        "validate": "run",
    }
    commit(project)
    project.dvc("push")
    clone = team.clone("clone")
    for command in ("status", "plan", "build", "doctor"):
        said = clone.cli(command)
        assert said.returncode != 0 or command == "doctor"
        assert "Run `dvc pull`" in said.stdout + said.stderr
    clone.dvc("pull")
    for one in (project, clone):
        assert set(stages_told_and_run(one).values()) == {"up to date"}
        new_file(one)
        status = one.cli("status").stdout.splitlines()
        assert status[0].endswith("1 new (it has no effect, since the tokenizer is imported)")
        assert status[1].endswith("up to date")
        [encode] = [stage for stage in result(one, "plan")["stages"] if stage["stage"] == "encode"]
        assert (encode["n_units_todo"], encode["n_units"]) == (1, 3)
        assert stages_told_and_run(one)["train-vocab"] == "up to date"


def test_in_a_clone_of_a_trained_project_all_tell_what_a_build_does(project: Project) -> None:
    team = make_team(project)
    project.dvc("push")
    clone = team.clone("clone")
    clone.dvc("pull")
    assert set(stages_told_and_run(clone).values()) == {"up to date"}
    new_file(clone)
    assert set(stages_told_and_run(clone).values()) == {"run"}
    assert run(clone.root, "git", "status", "--porcelain", "dvc.lock").strip() == "M dvc.lock"
