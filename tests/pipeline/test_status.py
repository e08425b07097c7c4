"""tokenmill status says what a build would do now, and why, without running anything."""

import json

from tests.conftest import Project


def test_a_status_names_what_would_be_done_and_why_and_does_nothing(project: Project) -> None:
    project.build()
    done = project.run("tokenmill", "status")
    assert [line.split(maxsplit=1)[1] for line in done.stdout.splitlines()] == ["up to date"] * 4
    before = project.outputs()
    project.set(train_vocab__vocab_size=300)
    project.write("c.jsonl", ["a new one"])
    done = project.run("tokenmill", "status")
    assert done.returncode == 1
    count, train_vocab, encode, _ = done.stdout.splitlines()
    assert "data/raw modified" in count
    assert "params.yaml: train_vocab modified" in train_vocab
    assert "data/raw modified" in encode
    found = json.loads(project.run("tokenmill", "status", "--json").stdout)["result"]["stages"]
    assert [one["after"] for one in found][:2] == [[], ["count"]]
    assert project.outputs() == before
    project.build()
    assert project.run("tokenmill", "status").returncode == 0


def test_a_status_before_the_first_build_has_everything_to_do(project: Project) -> None:
    done = project.run("tokenmill", "status")
    assert done.returncode == 1
    assert [line.split(maxsplit=1)[1] for line in done.stdout.splitlines()] == ["to do: never built"] * 4
