"""A version is published completely or not at all, and another clone fetches exactly its files."""

import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders.packages import write_dist_info
from tests.builders.prefect_server import Server
from tests.builders.teams import Team, cli, commit, copied, identify, keys, make_team, run
from tests.conftest import REPOSITORY, Project, new_project
from tokenmill.storage.atomic import md5_file, sha256_directory
from tokenmill.versioning.registry import directory_md5
from tokenmill.versioning.signing import sign_directory, verify_directory


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """One build for all tests of this module, which copy it."""
    folder = tmp_path_factory.mktemp("built")
    return make_team(new_project.__wrapped__(folder)("project"))  # type: ignore[attr-defined]


@pytest.fixture
def team(built: Team, tmp_path: Path) -> Team:
    return copied(built, tmp_path / "team")


def publish(project: Project, *arguments: str) -> str:
    """Runs `tokenmill publish`, and expects it to end well."""
    done = cli(project, "publish", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stderr


def refused(project: Project, *arguments: str) -> str:
    """What `tokenmill publish` says when it refuses; it must set no tag."""
    before = tags(project.root)
    done = cli(project, "publish", *arguments)
    assert done.returncode == 2, done.stderr
    assert tags(project.root) == before
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def tags(root: Path) -> list[str]:
    return run(root, "git", "tag").split()


@pytest.mark.slow
def test_without_a_name_for_git_no_tag_is_set(team: Team, tmp_path: Path) -> None:
    run(team.project.root, "git", "config", "--remove-section", "user")
    done = team.project.run("tokenmill", "publish", "tokenizer@v1.0.0", HOME=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith(
        "tokenmill: error[TM401]: git: has no name and address for commits and tags. Run `git config"
    )
    assert tags(team.project.root) == []


@pytest.mark.slow
def test_a_version_is_published_here_and_taken_there(team: Team) -> None:
    publish(team.project, "tokenizer@v1.0.0", "--stage", "prod")
    assert tags(team.bare) == ["tokenizer#prod#1", "tokenizer@v1.0.0"]
    assert run(team.project.root, "git", "cat-file", "-t", "tokenizer@v1.0.0").strip() == "tag"
    assert team.project.run("dvc", "status").stdout.strip() == "Data and pipelines are up to date."
    shown = json.loads(team.project.run("gto", "show", "tokenizer", "--json").stdout)
    assert [one["version"] for one in shown] == ["v1.0.0"]
    other = team.clone("other")
    for reference, folder in (("tokenizer@v1.0.0", "by-version"), ("tokenizer@prod", "by-stage")):
        done = cli(other, "fetch", reference, folder)
        assert done.returncode == 0, done.stderr
        assert sha256_directory(other.root / folder) == sha256_directory(team.project.root / "data/tokenizer")
    got = other.run("dvc", "artifacts", "get", str(team.bare), "tokenizer", "--rev", "v1.0.0", "-o", "by-dvc")
    assert got.returncode == 0, got.stderr
    assert sha256_directory(other.root / "by-dvc") == sha256_directory(other.root / "by-version")


def test_the_card_says_what_and_how(team: Team) -> None:
    readme = (team.project.root / "data/tokenizer/README.md").read_text(encoding="utf-8")
    card = json.loads((team.project.root / "data/tokenizer/card.json").read_text(encoding="utf-8"))
    report = json.loads((team.project.root / "data/report/report.json").read_text(encoding="utf-8"))
    assert card["digest"] == report["tokenizer_digest"]
    assert card["training"]["text_bytes"] == report["text_bytes"]
    assert card["training"]["n_tokens"] == report["tokens"] - report["documents"]  # less the ends of documents
    assert [shard["name"] for shard in card["training"]["shards"]] == ["data/raw/a.jsonl", "data/raw/b.jsonl"]
    for words in (card["digest"], card["training"]["shards"][0]["sha256"], "tiktoken", "AutoTokenizer", "License"):
        assert words in readme


@pytest.mark.slow
def test_the_examples_of_the_card_give_the_same_ids(team: Team) -> None:
    directory = str(team.project.root / "data/tokenizer")
    readme = (team.project.root / "data/tokenizer/README.md").read_text(encoding="utf-8")
    golden = json.loads((team.project.root / "data/tokenizer/golden.json").read_text(encoding="utf-8"))
    vector = next(one for one in golden["vectors"] if one["name"] == "panel/latin/german")
    blocks = readme.split("```python\n")[1:]
    assert len(blocks) == 5
    shown = """
import json, sys
ids = tokenizer.encode(sys.argv[1])
print(json.dumps(getattr(ids, "ids", ids)))
"""
    for block in blocks:
        example = block.split("```")[0].replace("DIRECTORY", directory)
        done = team.project.run(sys.executable, "-c", example + shown, vector["text"])
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == vector["ids"]


def test_transformers_gives_all_golden_ids_with_the_argument_that_the_card_names(team: Team) -> None:
    from transformers import AutoTokenizer

    directory = team.project.root / "data/tokenizer"
    assert "`tokenizer(text, split_special_tokens=True)`" in (directory / "README.md").read_text(encoding="utf-8")
    peer = AutoTokenizer.from_pretrained(directory)
    vectors = json.loads((directory / "golden.json").read_text(encoding="utf-8"))["vectors"]
    equal = [peer(one["text"], split_special_tokens=True)["input_ids"] == one["ids"] for one in vectors]
    assert all(equal) and not all(peer(one["text"])["input_ids"] == one["ids"] for one in vectors)


@pytest.mark.slow
def test_documents_that_dvc_has_not_recorded_are_not_left_behind(team: Team) -> None:
    project = team.project
    assert (project.root / "data/raw.dvc").is_file()
    project.write("c.jsonl", ["one more"])
    project.build()
    commit(project)
    done = cli(project, "publish", "dataset@v1.0.0")
    assert done.returncode == 2
    assert "data/raw.dvc: data/raw has changed since DVC recorded it" in done.stderr
    assert "Run `dvc add data/raw`" in done.stderr
    project.dvc("add", "data/raw")
    commit(project)
    assert cli(project, "publish", "dataset@v1.0.0").returncode == 0
    other = team.clone("other")
    other.dvc("pull")
    assert (other.root / "data/raw/c.jsonl").read_bytes() == (project.root / "data/raw/c.jsonl").read_bytes()


def test_a_branch_that_was_not_pushed_is_told_with_the_command_that_does(team: Team) -> None:
    root = team.project.root
    assert "the branch" not in publish(team.project, "tokenizer@v0.9.0")
    run(root, "git", "commit", "-q", "--allow-empty", "-m", "Only here")
    branch = run(root, "git", "branch", "--show-current").strip()
    said = publish(team.project, "tokenizer@v1.0.0")
    assert f"the branch {branch} was not pushed" in said
    assert f"`git push origin {branch}`" in said


def test_what_is_not_committed_is_not_published(team: Team) -> None:
    (team.project.root / "note.txt").write_text("x", encoding="utf-8")
    assert "not committed: note.txt" in refused(team.project, "tokenizer@v1.0.0")


def test_everything_against_a_version_is_told_at_once(team: Team) -> None:
    publish(team.project, "tokenizer@v1.0.0")
    team.project.set(train_vocab__vocab_size=270)
    said = cli(team.project, "publish", "tokenizer@v1.0.0").stderr
    for words in ("not committed: params.yaml", "A change needs a higher version", "stage train-vocab is stale"):
        assert said.count(words) == 1, said


def test_another_package_refuses_a_version_by_an_entry_point(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "freeze.py").write_text(
        "from tokenmill.errors import VersionsError\n\n"
        "def refuse(root, params):\n"
        "    raise VersionsError('license', f'found {params.publish.license!r}.', f'Ask the owner of {root.name}.')\n"
    )
    write_dist_info(tmp_path, "freeze", 1, "before_publish", "freeze = freeze:refuse")
    monkeypatch.syspath_prepend(tmp_path)
    said = refused(team.project, "tokenizer@v1.0.0")
    assert said.endswith(f"license: found None. Ask the owner of {team.project.root.name}.")


@pytest.mark.slow
def test_other_ids_in_one_library_are_found_by_conform_and_its_program_and_refused_by_publish(team: Team) -> None:
    project = team.project
    file = project.root / "nfc.json"
    document = json.loads((project.root / "data/tokenizer/tokenizer.json").read_text(encoding="utf-8"))
    file.write_text(json.dumps(document | {"normalizer": {"type": "NFC"}}), encoding="utf-8")  # tiktoken has none
    project.set(tokenizer={"from": "nfc.json"}, publish__conform=["tokenizers", "tiktoken", "kitoken"])
    project.build()
    commit(project)
    libraries = ("--with", "tokenizers", "tiktoken")
    by_command = cli(project, "conform", "data/tokenizer", *libraries)
    by_program = project.run("python", "data/tokenizer/conform.py", *libraries)
    for done in (by_command, by_program):
        rows = [line.split()[:3:2] for line in done.stdout.splitlines()[1:]]
        assert (done.returncode, rows) == (1, [["tokenizers", "same"], ["tiktoken", "other"]]), done.stderr
    said = refused(project, "tokenizer@v1.0.0")
    assert "error[TM407]: publish.conform: not every library gives the ids of data/tokenizer: tiktoken other (" in said
    assert "found [" in said and ", kitoken not installed. Install" in said and "tokenizers " not in said
    assert not any((team.store / "files/md5").rglob("*"))
    project.set(publish__conform=["tokenizers"])
    commit(project)
    publish(project, "tokenizer@v1.0.0")  # without another build


def test_a_build_that_is_not_up_to_date_is_not_published(team: Team) -> None:
    team.project.set(train_vocab__vocab_size=270)
    commit(team.project)
    assert "stage train-vocab is stale" in refused(team.project, "tokenizer@v1.0.0")


def test_a_dataset_that_does_not_validate_is_not_published(team: Team) -> None:
    manifest = team.project.root / "data/tokens/manifest.json"
    changed = manifest.read_text(encoding="utf-8").replace('"n_documents":', '"n_documents": 1', 1)
    manifest.unlink()
    manifest.write_text(changed, encoding="utf-8")
    assert "Run `tokenmill build`" in refused(team.project, "dataset@v1.0.0")


def test_a_version_that_exists_or_does_not_rise_is_not_published(team: Team) -> None:
    publish(team.project, "tokenizer@v1.10.0")
    other = team.clone("other")
    other.dvc("pull")
    run(other.root, "git", "tag", "-d", "tokenizer@v1.10.0")  # known to the remote alone
    assert "tokenizer@v1.10.0 is published already: nothing to do" in publish(other, "tokenizer@v1.10.0")
    assert "tokenizer@v1.10.0 exists, and a new version must be higher" in refused(other, "tokenizer@v1.9.3")
    assert "this commit already has the version tokenizer@v1.10.0" in refused(other, "tokenizer@v2.0.0")
    assert "three numbers" in refused(other, "tokenizer@latest")
    assert "the artifacts are: dataset, tokenizer" in refused(other, "tokeniser@v2.0.0")


def test_a_push_that_fails_sets_no_tag_and_the_next_one_goes_on(team: Team) -> None:
    team.store.write_text("a file where the folder of the remote would be", encoding="utf-8")
    assert "DVC's remote: " in refused(team.project, "tokenizer@v1.0.0")
    team.store.unlink()
    publish(team.project, "tokenizer@v1.0.0")
    assert "tokenizer@v1.0.0" in tags(team.bare)


@pytest.mark.slow
def test_a_server_of_prefect_that_does_not_answer_is_named_and_not_asked_with_an_inline_engine(team: Team) -> None:
    nobody = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = team.project.run("tokenmill", "publish", "tokenizer@v1.0.0", **nobody)
    assert done.returncode == 0, done.stderr
    team.project.set(run__engine="threads")
    commit(team.project)
    done = team.project.run("tokenmill", "publish", "dataset@v1.0.0", **nobody)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "tokenmill: error[TM703]: PREFECT_API_URL: no Prefect server answers at http://127.0.0.1:9/api"
    )
    assert tags(team.bare) == ["tokenizer@v1.0.0"]


@pytest.mark.slow
def test_a_server_shows_what_is_published_and_what_is_refused(team: Team, server: Server) -> None:
    team.project.set(run__engine="threads")
    commit(team.project)
    for version, code, state in (("v1.0.0", 0, "COMPLETED"), ("v1.0.0", 0, "COMPLETED"), ("v0.9.0", 2, "FAILED")):
        done = team.project.run("tokenmill", "publish", f"tokenizer@{version}", **server.environment)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert server.flow_run(f"publish tokenizer@{version}")["state"]["type"] == state
    assert tags(team.bare) == ["tokenizer@v1.0.0"]


def test_a_tag_that_git_cannot_push_is_not_left_here(team: Team) -> None:
    hook = team.bare / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    hook.chmod(0o755)
    assert "no tag was set" in refused(team.project, "tokenizer@v1.0.0", "--stage", "prod")
    hook.unlink()
    publish(team.project, "tokenizer@v1.0.0", "--stage", "prod")


def test_a_changed_file_in_the_cache_of_dvc_is_not_pushed(team: Team) -> None:
    found = json.loads(team.project.run("dvc", "data", "status", "--json").stdout or "{}")
    assert not found.get("uncommitted")
    card = team.project.root / "data/tokenizer/card.json"
    [cached] = [
        path
        for path in (team.project.root / ".dvc/cache/files").rglob("*")
        if path.is_file() and path.read_bytes() == card.read_bytes()
    ]
    content = cached.read_bytes()
    cached.chmod(0o644)
    cached.write_bytes(content[:-3] + b" }\n")
    os.utime(cached, ns=(card.stat().st_atime_ns, card.stat().st_mtime_ns))
    cached.chmod(0o444)
    assert "in DVC's cache do not match its name" in refused(team.project, "tokenizer@v1.0.0")


def test_a_directory_that_was_cut_in_the_remote_is_named(team: Team) -> None:
    publish(team.project, "tokenizer@v1.0.0")
    name = directory_md5(team.project.root / "data/tokens")
    stored = team.store / "files/md5" / name[:2] / name[2:]
    stored.chmod(0o644)
    stored.write_bytes(b"[")
    said = refused(team.project, "dataset@v1.0.0")
    assert f"DVC's remote: object {name} is corrupted: {stored}. No version was registered. Delete that file" in said
    assert tags(team.bare) == ["tokenizer@v1.0.0"]
    stored.unlink()
    publish(team.project, "dataset@v1.0.0")


def test_a_directory_that_a_killed_push_left_empty_in_the_remote_is_pushed_again(team: Team) -> None:
    publish(team.project, "tokenizer@v1.0.0")
    name = directory_md5(team.project.root / "data/tokens")
    stored = team.store / "files/md5" / name[:2] / name[2:]
    whole = stored.read_bytes()
    stored.chmod(0o644)
    stored.write_bytes(b"")
    publish(team.project, "dataset@v1.0.0")
    assert stored.read_bytes() == whole


def test_what_was_pushed_is_told_by_kind(team: Team) -> None:
    root = team.project.root
    words = re.search(r"publish: (\d+) files pushed: (.*)", publish(team.project, "tokenizer@v1.0.0"))
    assert words is not None
    kinds = {kind: int(n_files) for kind, n_files in (one.split() for one in words[2].split(", "))}
    assert list(kinds) == ["counts", "dataset", "documents", "report", "tokenizer"]
    assert (kinds["documents"], kinds["tokenizer"]) == (2, sum(1 for _ in (root / "data/tokenizer").iterdir()))
    objects = [path.relative_to(team.store).as_posix() for path in team.store.rglob("*") if path.is_file()]
    assert int(words[1]) == sum(kinds.values()) == sum(not name.endswith(".dir") for name in objects)
    assert "publish: the DVC remote already has every file\n" in publish(team.project, "dataset@v1.0.0")


@pytest.mark.parametrize("damage", ["cut", "lost"])
def test_a_file_that_the_remote_lost_is_pushed_again(team: Team, damage: str) -> None:
    publish(team.project, "tokenizer@v1.0.0")
    part = next((team.project.root / "data/tokens/documents").glob("*.parquet"))
    name = md5_file(part)
    stored = team.store / "files/md5" / name[:2] / name[2:]
    stored.unlink()
    if damage == "cut":
        stored.touch()
    publish(team.project, "dataset@v1.0.0")
    assert stored.read_bytes() == part.read_bytes()


def test_a_changed_file_in_the_remote_is_refused_by_who_takes_it(team: Team) -> None:
    publish(team.project, "tokenizer@v1.0.0")
    content = (team.project.root / "data/tokenizer/tokenizer.json").read_bytes()
    [stored] = [path for path in team.store.rglob("*") if path.is_file() and path.read_bytes() == content]
    stored.chmod(0o644)
    stored.write_bytes(content.replace(b"the", b"teh"))
    other = team.clone("other")
    done = cli(other, "fetch", "tokenizer@v1.0.0", "got")
    assert done.returncode == 2
    assert "the bytes of this object do not match its name" in done.stderr
    assert not (other.root / "got").exists()


def test_a_version_that_was_not_pushed_is_not_taken_in_part(team: Team) -> None:
    publish(team.project, "tokenizer@v1.0.0")
    shutil.rmtree(team.store)
    other = team.clone("other")
    done = cli(other, "fetch", "tokenizer@v1.0.0", "got")
    assert done.returncode == 2
    assert "tokenizer@v1.0.0" in done.stderr
    assert not (other.root / "got").exists()
    assert "Versions of tokenizer: v1.0.0" in cli(other, "fetch", "tokenizer@v3.0.0", "got").stderr


def test_a_tag_that_no_publication_set_is_refused(team: Team) -> None:
    run(team.bare, "git", "tag", "tokenizer@v3.0.0", "HEAD")
    run(team.project.root, "git", "tag", "-a", "-m", "x", "tokenizer@v4.0.0", "HEAD:params.yaml")
    for repository, version in ((team.bare, "v3.0.0"), (team.project.root, "v4.0.0")):
        done = cli(team.project, "fetch", f"tokenizer@{version}", "got", "--from", str(repository))
        assert done.returncode == 2
        assert f"tokenizer@{version} is no annotated tag of a commit" in done.stderr
        assert not (team.project.root / "got").exists()


def test_a_directory_that_is_there_is_not_overwritten(team: Team) -> None:
    publish(team.project, "dataset@v0.1.0")
    done = cli(team.project, "fetch", "dataset@v0.1.0", "data/tokens")
    assert done.returncode == 2
    assert "[TM406]: data/tokens: is not empty: it holds README.md, documents, manifest.json. Nothing" in done.stderr
    assert done.stderr.endswith("or delete this one first: `rm -r data/tokens`.\n")
    done = cli(team.project, "fetch", "dataset@v0.1.0", "dvc.lock")
    assert "dvc.lock: is a file. Name a directory that is not there yet" in done.stderr
    (team.project.root / "new").mkdir()
    assert cli(team.project, "fetch", "dataset@v0.1.0", "new").returncode == 0


def test_publishing_again_what_is_published_says_so_and_what_of_its_stage(team: Team) -> None:
    publish(team.project, "tokenizer@v1.0.0", "--stage", "prod")
    before = tags(team.project.root)
    again = publish(team.project, "tokenizer@v1.0.0", "--stage", "prod")
    assert again.endswith("publish: tokenizer@v1.0.0 is published already with the stage prod: nothing to do\n")
    done = cli(team.project, "publish", "tokenizer@v1.0.0", "--json")
    assert json.loads(done.stdout)["result"]["tags"] == []
    assert done.stderr.endswith("publish: tokenizer@v1.0.0 is published already: nothing to do\n")
    assert tags(team.project.root) == tags(team.bare) == before
    (team.project.root / "notes").touch()
    commit(team.project)
    assert "exists with the stage prod, of commit" in refused(team.project, "tokenizer@v1.0.0", "--stage", "prod")
    other = refused(team.project, "tokenizer@v1.0.0", "--stage", "test")
    assert other.endswith("`gto assign tokenizer --version v1.0.0 --stage test`, and push the tag.")
    assert refused(team.project, "tokenizer@v1.0.0").endswith("Take a higher version.")


@pytest.mark.slow
def test_a_version_that_lost_its_stage_is_told_how_to_get_it_again(team: Team) -> None:
    publish(team.project, "tokenizer@v1.0.0", "--stage", "prod")
    (team.project.root / "notes").touch()
    commit(team.project)
    publish(team.project, "tokenizer@v1.1.0", "--stage", "prod")
    run(team.project.root, "git", "checkout", "-q", "tokenizer@v1.0.0")
    said = refused(team.project, "tokenizer@v1.0.0", "--stage", "prod")
    assert "tokenizer@v1.0.0 is published already, and is of the present commit" in said
    [command] = [part for part in said.split("`") if part.startswith("gto assign")]
    assert team.project.run(*command.split()).returncode == 0
    assert "tokenizer#prod#3" in tags(team.project.root)


@pytest.mark.slow
def test_killed_at_any_moment_it_publishes_whole_or_not_and_goes_on(team: Team) -> None:
    command = [str(Path(sys.executable).parent / "tokenmill"), "publish", "tokenizer@v1.0.0", "--stage", "prod"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    here, there = team.project.root / ".git/refs/tags", team.bare / "refs/tags"
    moments = {
        "a random moment": lambda: random.random() < 0.001,
        "the push has begun": lambda: team.store.exists(),
        "some files are pushed": lambda: sum(path.is_file() for path in team.store.rglob("*")) > 3,
        "the version has its tag": lambda: (here / "tokenizer@v1.0.0").exists(),
        "the stage has its tag": lambda: (here / "tokenizer#prod#1").exists(),
        "the tags are pushed": lambda: (there / "tokenizer#prod#1").exists(),
    }
    for name, has_come in moments.items():
        process = subprocess.Popen(
            command, cwd=team.project.root, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while process.poll() is None and not has_come():
            time.sleep(0.001)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if "tokenizer@v1.0.0" in tags(team.bare):
            other = team.clone(name)
            assert cli(other, "fetch", "tokenizer@v1.0.0", "got").returncode == 0
    last = cli(team.project, "publish", "tokenizer@v1.0.0", "--stage", "prod")
    assert last.returncode == 0, last.stderr
    assert tags(team.bare) == ["tokenizer#prod#1", "tokenizer@v1.0.0"]


def test_a_lock_file_of_dvc_that_was_cut_does_not_stop_publishing(team: Team) -> None:
    (team.project.root / ".tokenmill/lock").write_text("the holder was killed", encoding="utf-8")
    (team.project.root / ".dvc/tmp/rwlock").write_bytes(b"")
    publish(team.project, "tokenizer@v1.0.0")


def test_nothing_is_published_during_a_build(team: Team) -> None:
    with (team.project.root / ".tokenmill/lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = cli(team.project, "publish", "tokenizer@v1.0.0")
    assert done.returncode == 2
    assert "another process is building this project" in done.stderr
    assert tags(team.bare) == []


def sold_as_new(team: Team, tag: str, new: str, signature: str | None = None) -> None:
    """Puts a new tag on the commit of a version, with the message of its tag, or with another signature in it."""
    message = run(team.bare, "git", "tag", "--list", "--format=%(contents)", tag)
    if signature is not None:
        message = "\n".join(line for line in message.splitlines() if not line.startswith("signature: "))
        message += f"\nsignature: {signature}"
    identify(team.bare)
    run(team.bare, "git", "tag", "--annotate", "--message", message, new, f"{tag}^{{commit}}")


@pytest.mark.slow
def test_a_version_that_is_published_already_is_not_signed_afterwards(team: Team, tmp_path: Path) -> None:
    private, _ = keys(tmp_path)
    publish(team.project, "tokenizer@v1.0.0")
    for _ in ("here and there", "there alone"):
        done = cli(team.project, "publish", "tokenizer@v1.0.0", "--sign", str(private))
        assert done.returncode == 2
        assert "tokenizer@v1.0.0: was tagged without a signature, and a tag is not changed" in done.stderr
        run(team.project.root, "git", "tag", "--delete", "tokenizer@v1.0.0")
    publish(team.project, "dataset@v1.0.0", "--sign", str(private))
    assert "published already: nothing to do" in publish(team.project, "dataset@v1.0.0", "--sign", str(private))


@pytest.mark.slow
def test_a_signed_version_is_taken_only_as_it_was_signed(team: Team, tmp_path: Path) -> None:
    private, public = keys(tmp_path)
    publish(team.project, "tokenizer@v1.0.0", "--sign", str(private))
    other = team.clone("other")
    done = cli(other, "fetch", "tokenizer@v1.0.0", "got", "--verify", str(public))
    assert done.returncode == 0, done.stderr
    verify_directory(other.root / "got", (other.root / "got.sig").read_text(encoding="utf-8"), public, "got")
    sold_as_new(team, "tokenizer@v1.0.0", "tokenizer@v9.0.0")
    done = cli(other, "fetch", "tokenizer@v9.0.0", "no", "--from", str(team.bare), "--verify", str(public))
    assert done.returncode == 2
    assert "the signature in its tag is that of tokenizer@v1.0.0 " in done.stderr
    assert not (other.root / "no").exists()
    earlier = sign_directory(other.root / "got", private, "tokenizer")
    sold_as_new(team, "tokenizer@v1.0.0", "tokenizer@v9.0.1", earlier)
    done = cli(other, "fetch", "tokenizer@v9.0.1", "earlier", "--from", str(team.bare), "--verify", str(public))
    assert done.returncode == 0, done.stderr
    assert "an earlier tokenmill signed it" in done.stderr
    _private, wrong = keys(tmp_path)
    assert cli(other, "fetch", "tokenizer@v1.0.0", "no", "--verify", str(wrong)).returncode == 2
    publish(team.project, "dataset@v1.0.0")
    done = cli(other, "fetch", "dataset@v1.0.0", "no", "--from", str(team.bare), "--verify", str(public))
    assert "is not signed" in done.stderr
    assert not (other.root / "no").exists()
