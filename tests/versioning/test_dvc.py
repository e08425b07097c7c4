"""DVC keeps the versions of a dataset: an old one can be restored, another clone can pull it, and a build redoes only changes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.builds import units_done
from tests.builders.damage import cached, flip_a_byte
from tests.builders.teams import Team, build, commit, copied, make_team, run
from tests.conftest import Project, new_project
from tokenmill import Tokenizer

Made = dict[str, bytes]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A build of six shards, two of which have bad documents, committed and pushed."""
    project: Project = new_project.__wrapped__(tmp_path_factory.mktemp("built"))("project")  # type: ignore[attr-defined]
    for name in "cdef":
        project.write(f"{name}.jsonl", [f"shard {name} and the cat"] * 40)
    for name in "de":
        lines = (project.root / f"data/raw/{name}.jsonl").read_bytes().splitlines(keepends=True)
        bad = [*lines[:7], b"\n", b'{"text": null}\n', *lines[7:30], b'{"text": \xff}\n', *lines[30:]]
        (project.root / f"data/raw/{name}.jsonl").write_bytes(b"".join(bad))
    project.set(source__on_bad_document="quarantine", source__bad_documents_max=10, source__unit_bytes_max=1500)
    team = make_team(project)
    project.dvc("push")
    return team


@pytest.fixture(scope="module")
def expected(built: Team, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """What a build makes that encodes everything, after `change_one_shard`."""
    team = copied(built, tmp_path_factory.mktemp("expected") / "team")
    change_one_shard(team.project)
    assert units_done(build(team.project, "--only", "encode", "--force").stderr, "encode") == "all"
    build(team.project)
    return team.project.outputs()


@pytest.fixture
def pulled(built: Team, tmp_path: Path) -> Project:
    """A clone of its own, with all that DVC keeps."""
    team = copied(built, tmp_path / "team")
    clone = team.clone("clone")
    clone.dvc("pull")
    return clone


def change_one_shard(project: Project) -> None:
    """With the tokenizer as it is, as a published one would be."""
    with project.edited("dvc.yaml") as pipeline:
        for stage in ("count", "train-vocab"):
            pipeline["stages"][stage]["frozen"] = True
    shard = project.root / "data/raw/c.jsonl"
    shard.unlink()
    shard.write_text('{"id": "c", "text": "another text"}\n', encoding="utf-8")


def n_units(project: Project) -> int:
    return len(json.loads((project.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))["shards"])


@pytest.mark.slow
def test_another_clone_has_nothing_to_do_and_encodes_one_changed_shard_alone(pulled: Project, expected: Made) -> None:
    assert set(pulled.actions(build(pulled)).values()) == {"up to date"}
    assert not (pulled.root / ".tokenmill/units").exists()
    change_one_shard(pulled)
    done = build(pulled)
    assert units_done(done.stderr, "encode") == f"1 of {n_units(pulled)}"
    assert pulled.outputs() == expected


@pytest.mark.slow
def test_units_that_were_cleaned_away_are_taken_from_the_dataset(built: Team, tmp_path: Path, expected: Made) -> None:
    project = copied(built, tmp_path / "team").project
    shutil.rmtree(project.root / ".tokenmill")
    shutil.rmtree(project.root / "data/tokens")  # as dvc repro does before it runs a stage
    change_one_shard(project)
    done = project.run("tokenmill", "build", "--only", "encode", DVC_STAGE="encode")
    assert done.returncode == 0, done.stderr
    assert units_done(done.stderr, "encode") == f"1 of {n_units(project)}"
    assert units_done(build(project).stderr, "encode") == f"0 of {n_units(project)}"
    assert project.outputs() == expected


@pytest.mark.parametrize("name", ["data/tokens/documents/b.jsonl.parquet", "data/quarantine/quarantine.parquet"])
def test_a_pulled_file_with_another_digest_is_not_taken(pulled: Project, expected: Made, name: str) -> None:
    n_bad_units = sum(
        any(rows["n_bad"] for rows in shard["rows"])
        for shard in json.loads((pulled.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))["shards"]
    )
    flip_a_byte(cached(pulled, name))
    change_one_shard(pulled)
    done = build(pulled)
    assert "the bytes of this file in DVC's cache did not match its name" in done.stderr
    n_again = 1 if name.endswith("b.jsonl.parquet") else n_bad_units
    assert units_done(done.stderr, "encode") == f"{1 + n_again} of {n_units(pulled)}"
    assert pulled.outputs() == expected


@pytest.mark.slow
def test_an_old_version_comes_back_and_branches_alternate_without_work(built: Team, tmp_path: Path) -> None:
    project = copied(built, tmp_path / "team").project
    main = run(project.root, "git", "branch", "--show-current").strip()
    old = project.outputs()
    run(project.root, "git", "checkout", "-q", "-b", "small")
    project.set(train_vocab__vocab_size=270)
    build(project)
    commit(project)
    new = project.outputs()
    assert new.keys() == old.keys()
    assert new != old
    run(project.root, "git", "checkout", "-q", main)
    project.dvc("checkout")
    assert project.outputs() == old
    assert set(project.actions(build(project)).values()) == {"up to date"}
    shutil.rmtree(project.root / ".tokenmill")
    for branch, outputs in (("small", new), (main, old)):  # without dvc checkout: what the run cache has comes back
        run(project.root, "git", "checkout", "-q", branch)
        assert project.actions(build(project)) == {
            "count": "up to date",
            "train-vocab": "restored",
            "encode": "restored",
            "validate": "restored",
        }
        assert project.outputs() == outputs
        assert run(project.root, "git", "status", "--porcelain") == ""


@pytest.mark.slow
def test_an_experiment_runs_with_another_parameter_and_linked_files_are_on_disk_once(
    new_project: Callable[[str], Project],
) -> None:
    project = new_project("project")
    project.dvc("config", "--local", "cache.type", "hardlink,copy")
    make_team(project)
    done = project.run("dvc", "exp", "run", "-n", "small", "-S", "train_vocab.vocab_size=270")
    assert done.returncode == 0, done.stderr
    assert Tokenizer.load(project.root / "data/tokenizer").vocab_size == 270
    assert set(project.actions(build(project)).values()) == {"up to date"}
    shown = project.run("dvc", "metrics", "diff", "--json")
    found = json.loads(shown.stdout)["data/report/metrics.json"]["tokens"]
    assert found["diff"] == found["new"] - found["old"] > 0
    raw = (project.root / "data/raw/a.jsonl").stat()
    tokens = (project.root / "data/tokens/documents/a.jsonl.parquet").stat()
    assert (raw.st_nlink, raw.st_mode & 0o777) == (2, 0o444)  # and in DVC's cache
    assert (tokens.st_nlink, tokens.st_mode & 0o777) == (3, 0o444)  # and in the unit store
