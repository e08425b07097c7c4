"""tokenmill init makes a project that builds with nothing but documents, and overwrites nothing."""

import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import tokenmill
from tests.builders.teams import Said, cli, identify, run
from tests.conftest import DOCUMENTS, REPOSITORY, Project

TEMPLATE = REPOSITORY / "tokenmill/project/template"
FILES = {
    path.relative_to(TEMPLATE).as_posix() for path in TEMPLATE.rglob("*") if path.is_file() and path.suffix != ".pyc"
} | {"tokenmill.lock"}


def init(folder: Path, name: str) -> Said:
    """Runs `tokenmill init NAME` in a folder."""
    return cli(Project(folder), "init", name)


def filled(project: Project) -> Project:
    """The project with documents, a small vocabulary and run.engine: inline, committed after its first build."""
    for shard, documents in DOCUMENTS.items():
        project.write(shard, documents)
    project.set(train_vocab__vocab_size=272, run__engine="inline")
    done = cli(project, "build")
    assert done.returncode == 0, done.stderr
    identify(project.root)
    run(project.root, "git", "add", ".")
    run(project.root, "git", "commit", "-q", "-m", "First build")
    return project


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("init")
    done = init(folder, "my project")
    assert done.returncode == 0, done.stderr
    return filled(Project(folder / "my project"))


@pytest.fixture
def project(first: Project, tmp_path: Path) -> Project:
    """A new project, filled and built, of which each test has a copy."""
    shutil.copytree(first.root, tmp_path / "my project", symlinks=True)
    return Project(tmp_path / "my project")


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, with the content of files."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def stages(path: Path) -> dict[str, dict[str, list[object]]]:
    found: dict[str, dict[str, list[object]]] = YAML(typ="safe", pure=True).load(path)["stages"]
    return found


def test_a_new_project_builds_and_is_up_to_date_for_tokenmill_and_for_dvc(project: Project) -> None:
    tracked = set(run(project.root, "git", "ls-files").splitlines())
    assert tracked > FILES | {".dvc/config", ".dvcignore", ".gitignore", "dvc.lock"}
    assert not any(name.startswith("data/") for name in tracked - FILES)
    assert cli(project, "status").returncode == 0
    done = project.run("dvc", "status")
    assert done.stdout.strip() == "Data and pipelines are up to date."
    assert run(project.root, "git", "status", "--porcelain") == ""


def test_a_new_project_publishes_as_soon_as_it_has_a_remote(project: Project, tmp_path: Path) -> None:
    done = cli(project, "publish", "tokenizer@v0.1.0")
    assert done.returncode == 2
    assert "dvc remote add -d" in done.stderr
    project.dvc("remote", "add", "-d", "store", str(tmp_path / "store"))
    done = cli(project, "publish", "tokenizer@v0.1.0")
    assert "not committed: .dvc/config" in done.stderr
    run(project.root, "git", "commit", "-q", "-a", "-m", "Remote")
    done = cli(project, "publish", "tokenizer@v0.1.0")
    assert done.returncode == 0, done.stderr
    assert run(project.root, "git", "tag").split() == ["tokenizer@v0.1.0"]


def test_the_site_cache_of_dvc_is_private_and_nothing_is_sent(tmp_path: Path) -> None:
    """DVC unpickles what it finds in its site cache (CVE-2025-69872)."""
    before = os.umask(0)
    try:
        assert init(tmp_path, "new").returncode == 0
    finally:
        os.umask(before)
    root = tmp_path / "new"
    private = root / ".dvc/tmp/site-cache"
    assert f"site_cache_dir = {private}" in (root / ".dvc/config.local").read_text(encoding="utf-8")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert "DVC_SITE_CACHE_DIR" not in os.environ
    done = Project(root).run("dvc", "config", "core.analytics")
    assert done.stdout.strip() == "False"


def test_an_existing_repository_keeps_its_files(tmp_path: Path) -> None:
    run(tmp_path, "git", "init", "-q")
    (tmp_path / "README.md").write_text("ours", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("/build\n*.partial", encoding="utf-8")
    done = init(tmp_path, ".")
    assert done.returncode == 0, done.stderr
    assert "README.md" not in done.stdout.replace("data/README.md", "")
    assert "cd " not in done.stdout
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "ours"
    lines = (tmp_path / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["/build", "*.partial"]
    assert lines.count("*.partial") == 1
    assert "/.tokenmill" in lines


@pytest.mark.parametrize("name", ["params.yaml", "dvc.yaml", "data/tokens/x.bin"])
def test_what_is_there_is_named_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    run(tmp_path, "git", "init", "-q")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("ours", encoding="utf-8")
    before = tree(tmp_path)
    done = init(tmp_path, ".")
    assert done.returncode == 2
    assert name.removesuffix("/x.bin") in done.stderr
    assert tree(tmp_path) == before


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("", encoding="utf-8")
    done = init(tmp_path, "x")
    assert done.returncode == 2
    assert "a file; expected a folder" in done.stderr


@pytest.mark.parametrize(("arguments", "folder"), [(("--bare",), "x"), ((), "x/.git")])
def test_a_folder_of_git_itself_is_refused(tmp_path: Path, arguments: tuple[str, ...], folder: str) -> None:
    run(tmp_path, "git", "init", "-q", *arguments, "x")
    before = tree(tmp_path)
    done = init(tmp_path, folder)
    assert done.returncode == 2
    assert "not in its working tree" in done.stderr
    assert tree(tmp_path) == before


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    assert init(tmp_path, "new").returncode == 0
    before = tree(tmp_path)
    done = init(tmp_path, "new")
    assert done.returncode == 2
    assert all(name in done.stderr for name in FILES - {"README.md"})
    assert tree(tmp_path) == before


def test_a_dvc_repository_stays_as_it_is_configured(tmp_path: Path) -> None:
    project = Project(tmp_path)
    run(tmp_path, "git", "init", "-q")
    project.dvc("init")
    project.dvc("remote", "add", "-d", "store", "/store")
    before = (tmp_path / ".dvc/config").read_bytes()
    assert init(tmp_path, ".").returncode == 0
    assert (tmp_path / ".dvc/config").read_bytes() == before


def test_a_project_inside_a_repository_shares_its_git(tmp_path: Path) -> None:
    run(tmp_path, "git", "init", "-q")
    done = init(tmp_path, "tokens")
    assert "but not publish" in done.stdout
    project = filled(Project(tmp_path / "tokens"))
    assert not (project.root / ".git").exists()
    assert "tokens/dvc.lock" in run(tmp_path, "git", "ls-files").splitlines()
    assert cli(project, "status").returncode == 0
    done = cli(project, "publish", "tokenizer@v0.1.0")
    assert f"from the root of its git repository, which is {tmp_path}" in done.stderr


def test_the_stages_are_those_of_tokenmill_with_digests_in_the_place_of_its_files(tmp_path: Path) -> None:
    assert init(tmp_path, "new").returncode == 0
    ours, own = stages(REPOSITORY / "dvc.yaml"), stages(tmp_path / "new/dvc.yaml")
    locked = json.loads((tmp_path / "new/tokenmill.lock").read_text(encoding="utf-8"))
    assert list(own) == list(ours) == list(locked["code"])
    for name, stage in own.items():
        *params, lock = stage["params"]
        assert params == ours[name]["params"]
        assert lock == {
            "tokenmill.lock": [f"code.{name}", *(["tokenizer"] if "tokenmill.lock" in ours[name]["deps"] else [])]
        }
        assert stage["deps"] == [dep for dep in ours[name]["deps"] if str(dep).startswith("data/")]
        assert {key: stage[key] for key in stage if key not in ("deps", "params")} == {
            key: ours[name][key] for key in ours[name] if key not in ("deps", "params")
        }


@pytest.mark.slow
def test_another_tokenmill_makes_the_stages_stale_whose_code_it_changes(project: Project) -> None:
    path = project.root / "tokenmill.lock"
    ours = path.read_bytes()
    lock = json.loads(ours)
    lock["code"]["encode"], lock["tokenmill"] = "0" * 64, "0.0.9"
    path.write_text(json.dumps(lock, indent=1) + "\n", encoding="utf-8")
    done = cli(project, "status")
    assert done.returncode == 1
    count, _, encode, validate = done.stdout.splitlines()
    assert "up to date" in count
    assert encode.endswith(f"to do: code changed: tokenmill 0.0.9 → {tokenmill.__version__}")
    assert "follows encode" in validate
    done = project.run("dvc", "repro")  # whose stage is run by this tokenmill, which is not the one that the lock names
    assert done.returncode != 0
    words = f"pins other code than is installed, for encode: code changed: tokenmill 0.0.9 → {tokenmill.__version__}."
    assert words in done.stderr
    assert "which differs for encode" in project.build().stderr
    assert path.read_bytes() == ours
    assert cli(project, "status").returncode == 0


def test_a_lock_that_is_missing_or_lacks_the_code_is_written_by_the_next_build(project: Project) -> None:
    path = project.root / "tokenmill.lock"
    ours = path.read_bytes()
    for content in (None, '{"tokenizer": null}\n'):
        path.unlink() if content is None else path.write_text(content, encoding="utf-8")
        assert "did not pin the code of tokenmill; it does now" in cli(project, "build").stderr
        assert path.read_bytes() == ours


@pytest.mark.slow
def test_an_experiment_of_dvc_runs_and_the_deployments_name_a_flow(project: Project) -> None:
    done = project.run("dvc", "exp", "run", "-S", "train_vocab.vocab_size=265")
    assert done.returncode == 0, done.stderr
    report = json.loads((project.root / "data/report/report.json").read_text(encoding="utf-8"))
    assert report["vocab_size"] == 265
    assert "bytes_per_token" in project.run("dvc", "metrics", "diff").stdout
    deployments = YAML(typ="safe", pure=True).load(project.root / "prefect.yaml")["deployments"]
    load = "import sys; from prefect.flows import load_flow_from_entrypoint as load; print(load(sys.argv[1]).name)"
    for entrypoint in {one["entrypoint"] for one in deployments}:
        done = project.run(sys.executable, "-c", load, entrypoint)
        assert done.stdout.strip() == "tokenmill-refresh", done.stderr
