"""A repository that somebody else made runs no command here, writes nothing elsewhere, and does not hang or crash its reader."""

import hashlib
import json
import re
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.document_sets import documents_dataset
from tests.builders.teams import identify, run
from tests.builders.trained import TOKENIZER
from tokenmill.config.publish_params import TokenizerSource
from tokenmill.errors import VersionsError
from tokenmill.versioning.import_tokenizer import pin_anew
from tokenmill.versioning.registry import Reference, fetch_version, find_version

ARTIFACT = "artifacts:\n  tokenizer:\n    path: data/tokenizer\n    type: model\n"
CONFIG = "[core]\n remote = store\n['remote \"store\"']\n url = {store}\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"    a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)


@dataclass(frozen=True)
class Foreign:
    """`root`: the clone of a repository with the artifact tokenizer; `store`: its DVC remote, a folder."""

    root: Path
    store: Path

    def put(self, content: bytes, end: str = "") -> str:
        """Adds a file to the DVC remote. Gives its md5."""
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        path = self.store / "files/md5" / md5[:2] / (md5[2:] + end)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return md5 + end

    def list_files(self, content: bytes) -> None:
        """Makes this the list of the artifact's files."""
        out = f"outs:\n- md5: {self.put(content, '.dir')}\n  hash: md5\n  path: tokenizer\n"
        (self.root / "data/tokenizer.dvc").write_text(out, encoding="utf-8")

    def commit(self, config: str | None = None, pipeline: str = ARTIFACT) -> None:
        """Commits everything as version v1.0.0."""
        config = CONFIG.format(store=self.store) if config is None else config
        (self.root / ".dvc/config").write_text(config, encoding="utf-8")
        (self.root / "dvc.yaml").write_text(pipeline, encoding="utf-8")
        run(self.root, "git", "add", "-A")
        run(self.root, "git", "commit", "-q", "--allow-empty", "-m", "Change")
        run(self.root, "git", "tag", "-f", "-a", "tokenizer@v1.0.0", "-m", "v1.0.0")

    def fetch(self, directory: Path, repository: str | None = None) -> None:
        """Fetches v1.0.0, which must leave no other file behind."""
        version = find_version(repository or str(self.root), Reference("tokenizer", "v1.0.0"), self.root.parent)
        fetch_version(version, directory)


@pytest.fixture
def foreign(tmp_path: Path) -> Foreign:
    found = Foreign(tmp_path / "clone", tmp_path / "store")
    (found.root / ".dvc").mkdir(parents=True)
    (found.root / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n", encoding="utf-8")
    (found.root / "data").mkdir()
    run(found.root, "git", "init", "-q")
    identify(found.root)
    TOKENIZER.save(tmp_path / "tokenizer")
    files = sorted((tmp_path / "tokenizer").iterdir())
    listed = [{"md5": found.put(path.read_bytes()), "relpath": path.name} for path in files]
    found.list_files(json.dumps(listed).encode())
    found.commit()
    return found


def test_a_repository_with_a_usual_config_is_fetched(foreign: Foreign, tmp_path: Path) -> None:
    foreign.fetch(tmp_path / "out")
    assert (tmp_path / "out/tokenizer.json").is_file()


@pytest.mark.parametrize("by_url", [False, True])
@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("s3://bucket/x", "configpath"),
        ("s3://bucket/x", "credentialpath"),
        ("webdav://host.invalid/x", "bearer_token_command"),
        ("ssh://host.invalid/x", "keyfile"),
        ("ssh://host.invalid/x", "gss_auth"),
        ("gs://bucket/x", "credentialpath"),
        ("s3://bucket/x", "endpointurl"),
        ("s3://bucket/x", "profile"),
        ("oss://bucket/x", "oss_endpoint"),
    ],
)
def test_a_key_that_runs_a_command_is_refused_by_its_name(
    foreign: Foreign, tmp_path: Path, by_url: bool, url: str, key: str
) -> None:
    foreign.commit(f"{CONFIG.format(store=foreign.store)}['remote \"other\"']\n url = {url}\n {key} = true\n")
    with pytest.raises(VersionsError, match=rf"sets {key} of the remote other.*dvc remote modify --local other {key} "):
        foreign.fetch(tmp_path / "out", f"file://{foreign.root}" if by_url else None)
    assert not (tmp_path / "out").exists()


def test_a_credential_process_of_a_repository_is_not_run(foreign: Foreign, tmp_path: Path) -> None:
    (foreign.root / ".dvc/aws").write_text(
        f"[profile evil]\ncredential_process = /usr/bin/touch {tmp_path / 'ran'}\n", encoding="utf-8"
    )
    foreign.commit(
        "[core]\n remote = store\n['remote \"store\"']\n url = s3://bucket/x\n endpointurl = http://127.0.0.1:9\n"
        " configpath = aws\n profile = evil\n"
    )
    asked = TokenizerSource.model_validate({"from": str(foreign.root), "name": "tokenizer", "version": "v1.0.0"})
    with pytest.raises(VersionsError, match="sets configpath of the remote store"):
        pin_anew(tmp_path, asked)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("own", [True, False])
def test_keys_of_the_caller_are_not_sent_to_a_host_that_a_repository_names(
    foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """A remote of that name in the caller's own configuration counts in its place."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        foreign.commit(
            f"[core]\n remote = store\n['remote \"store\"']\n url = s3://bucket/x\n endpointurl = http://127.0.0.1:{port}\n"
        )
        if own:
            (tmp_path / "config").mkdir()
            (tmp_path / "config/config").write_text(f"['remote \"store\"']\n url = {foreign.store}\n", encoding="utf-8")
            monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path / "config"))
            foreign.fetch(tmp_path / "out", f"file://{foreign.root}")
        else:
            with pytest.raises(VersionsError, match="sets endpointurl of the remote store"):
                foreign.fetch(tmp_path / "out", f"file://{foreign.root}")
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_a_key_in_the_users_own_config_counts_in_place_of_the_tracked_one(foreign: Foreign, tmp_path: Path) -> None:
    foreign.commit(
        f"{CONFIG.format(store=foreign.store)}['remote \"other\"']\n url = s3://bucket/x\n configpath = aws\n"
    )
    local = foreign.root / ".dvc/config.local"
    local.write_text("['remote \"other\"']\n configpath = /dev/null\n", encoding="utf-8")
    foreign.fetch(tmp_path / "out")
    run(foreign.root, "git", "add", "-f", ".dvc/config.local")
    with pytest.raises(VersionsError, match="sets configpath of the remote other"):
        foreign.fetch(tmp_path / "again")


def test_a_config_that_is_none_is_an_error_of_the_repository(foreign: Foreign, tmp_path: Path) -> None:
    foreign.commit("[remote]\n x = 1\n")
    with pytest.raises(VersionsError, match="expected a dictionary"):
        foreign.fetch(tmp_path / "out")


def test_a_key_before_the_first_section_of_a_config_is_an_error_of_the_repository(
    foreign: Foreign, tmp_path: Path
) -> None:
    foreign.commit("remote = x\n" + CONFIG.format(store=foreign.store))
    with pytest.raises(VersionsError, match=r"\.dvc/config has a key before its first section"):
        foreign.fetch(tmp_path / "out")


def test_the_site_cache_that_a_repository_names_is_not_used(
    foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
    foreign.commit(f"[core]\n site_cache_dir = {tmp_path / 'site'}\n{CONFIG.format(store=foreign.store)[7:]}")
    foreign.fetch(tmp_path / "out")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("name", ["../../x", "a/../x", "./x", "a//x", "..", "", "{folder}/x"])
def test_a_list_of_files_that_leads_elsewhere_is_refused(foreign: Foreign, tmp_path: Path, name: str) -> None:
    entry = {"md5": foreign.put(b"evil"), "relpath": name.format(folder=tmp_path)}
    foreign.list_files(json.dumps([entry]).encode())
    foreign.commit()
    with pytest.raises(VersionsError, match=r"\.dir: found the name .*, expected one inside the folder"):
        foreign.fetch(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clone", "store", "tokenizer"]


@pytest.mark.parametrize("content", [b"[" * 200_000, b"[1]", b"[{}]", b'[{"relpath": 1, "md5": "x"}]'])
def test_a_list_of_files_that_is_none_is_refused(foreign: Foreign, tmp_path: Path, content: bytes) -> None:
    foreign.list_files(content)
    foreign.commit()
    with pytest.raises(VersionsError, match="the list of a folder's files in DVC's cache or remote: is malformed"):
        foreign.fetch(tmp_path / "out")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (f"vars:\n  - {BOMB}", "line 11: with its aliases written out it has more than"),
        ("vars: &a [*a]\n", r"line 5: the alias \*a is inside the value that it stands for"),
        ("vars: " + "[" * 100_000, "line 5: it is nested deeper than 64 levels"),
        ("# a comment\n" * 1_400_000, "it has 16,800,065 characters; expected 16,777,216 at most"),
    ],
)
def test_a_pipeline_that_would_hang_or_crash_dvc_is_refused(
    foreign: Foreign, tmp_path: Path, more: str, reason: str
) -> None:
    foreign.commit(pipeline=ARTIFACT + more)
    with pytest.raises(VersionsError, match=rf"dvc\.yaml: {reason}"):
        foreign.fetch(tmp_path / "out")


NO_MD5 = "outs:\n- path: tokenizer\n"
WITH_MD5 = "outs:\n- path: tokenizer\n  hash: md5\n  md5: 0123456789abcdef0123456789abcdef.dir\n"
DEPS = [
    "- path: s3://bucket/x\n  fs_config: {{configpath: aws, profile: evil, endpointurl: '{web}'}}\n",
    "- path: '{mine}'\n",
    "- path: '{web}/x'\n",
    "- path: ssh://127.0.0.1:{port}/x\n",
    "- path: remote://store/x\n",
    "- path: tokenizer\n  repo: {{url: '{web}/x.git'}}\n",
    "- path: tokenizer\n  repo: {{url: '{mine}', config: aws, remote: {{url: '{web}'}}}}\n",
    "- db: {{connection: sqlite, query: SELECT 1}}\n",
]


@pytest.mark.parametrize("by_url", [False, True])
@pytest.mark.parametrize("outs", [NO_MD5, WITH_MD5])
@pytest.mark.parametrize("deps", DEPS)
def test_an_import_of_a_repository_is_neither_run_nor_asked(
    foreign: Foreign, tmp_path: Path, deps: str, outs: str, by_url: bool
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "tokenizer.json").write_text("SECRET", encoding="utf-8")
    (foreign.root / "data/aws").write_text(
        f"[profile evil]\ncredential_process = /usr/bin/touch {tmp_path / 'ran'}\n", encoding="utf-8"
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        words = deps.format(web=f"http://127.0.0.1:{port}", port=port, mine=mine)
        (foreign.root / "data/tokenizer.dvc").write_text(f"frozen: true\ndeps:\n{words}{outs}", encoding="utf-8")
        foreign.commit()
        reason = "has no md5 for data/tokenizer" if outs == NO_MD5 else "there is no such object in"
        with pytest.raises(VersionsError, match=reason):
            foreign.fetch(tmp_path / "out", f"file://{foreign.root}" if by_url else None)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert not (tmp_path / "ran").exists() and not (tmp_path / "out").exists()


@pytest.mark.parametrize("pipeline", ["stages:\n  x:\n    cmd: touch {ran}\n    outs: [data/tokenizer]\n", "{ran}: ["])
def test_a_stage_of_a_repository_is_not_run(foreign: Foreign, tmp_path: Path, pipeline: str) -> None:
    (foreign.root / "data/tokenizer.dvc").unlink()
    foreign.commit(pipeline=ARTIFACT + pipeline.format(ran=tmp_path / "ran"))
    with pytest.raises(VersionsError, match=r"is no output that dvc\.lock or a \.dvc file records|dvc\.yaml: "):
        foreign.fetch(tmp_path / "out")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("path", ["/etc", "../mine", "data/../../mine"])
def test_an_artifact_outside_of_its_repository_is_refused(foreign: Foreign, tmp_path: Path, path: str) -> None:
    (tmp_path / "mine").mkdir()
    foreign.commit(pipeline=f"artifacts:\n  tokenizer: {{path: {path}}}\n")
    with pytest.raises(VersionsError, match=r"dvc\.yaml: found the path .*, expected one inside the repository"):
        foreign.fetch(tmp_path / "out")


def test_a_nested_repository_and_a_remote_of_an_output_are_not_looked_at(foreign: Foreign, tmp_path: Path) -> None:
    (foreign.root / "data/.dvc").mkdir()
    evil = "[core]\n remote = x\n['remote \"x\"']\n url = ssh://127.0.0.1:9/x\n keyfile = /etc/passwd\n"
    (foreign.root / "data/.dvc/config").write_text(evil, encoding="utf-8")
    recorded = foreign.root / "data/tokenizer.dvc"
    recorded.write_text(recorded.read_text(encoding="utf-8") + "  remote: elsewhere\n", encoding="utf-8")
    foreign.commit()
    foreign.fetch(tmp_path / "out")
    assert (tmp_path / "out/tokenizer.json").is_file()


BROKEN = {
    "a list": b"outs: [",
    "not UTF-8": b"outs: \xff",
    "aliases": BOMB.encode(),
    "a link": "../params.yaml",
    "a link to nothing": "nowhere: [",
    "a link out of the repository": "/etc/passwd",
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("recorded", ["data/tokenizer.dvc", "dvc.lock"])
def test_projects_links_and_broken_files_beside_the_one_that_is_meant_do_not_matter(
    foreign: Foreign, tmp_path: Path, kind: str, recorded: str
) -> None:
    """As in a repository of programs, which has templates of projects, and their parameters as links."""
    if recorded == "dvc.lock":
        (foreign.root / "data/tokenizer.dvc").rename(tmp_path / "moved")
        [md5] = re.findall("md5: (.*)", (tmp_path / "moved").read_text(encoding="utf-8"))[:1]
        stage = {"cmd": "x", "outs": [{"path": "data/tokenizer", "hash": "md5", "md5": md5}]}
        (foreign.root / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": {"x": stage}}), encoding="utf-8")
    (foreign.root / "params.yaml").write_text("a: 1\n", encoding="utf-8")
    (foreign.root / "program/template/.dvc").mkdir(parents=True)
    beside = {"program/template/", "data/"}
    names = {f"{folder}{name}" for folder in beside for name in ("dvc.yaml", "dvc.lock", "params.yaml", "a.dvc")} | {
        "a.dvc"
    }
    for name in names:
        path, content = foreign.root / name, BROKEN[kind]
        if isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
    foreign.commit()
    foreign.fetch(tmp_path / "out", f"file://{foreign.root}" if recorded == "dvc.lock" else None)
    assert (tmp_path / "out/tokenizer.json").is_file()


def test_a_broken_file_is_named_where_nothing_else_has_the_record(foreign: Foreign, tmp_path: Path) -> None:
    (foreign.root / "data/tokenizer.dvc").write_text("outs: [", encoding="utf-8")
    foreign.commit()
    with pytest.raises(VersionsError, match=r"(?s)data/tokenizer\.dvc: .*line 1"):
        foreign.fetch(tmp_path / "out")


def test_an_object_with_other_bytes_than_its_name_says_is_refused(foreign: Foreign, tmp_path: Path) -> None:
    for path in foreign.store.rglob("*"):
        if path.is_file() and not path.name.endswith(".dir"):
            path.write_bytes(b"evil")
    with pytest.raises(VersionsError, match="the bytes of this object do not match its name"):
        foreign.fetch(tmp_path / "out")


def test_the_remote_of_a_url_is_said(foreign: Foreign, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign.fetch(tmp_path / "out", f"file://{foreign.root}")
    assert f"its files come from {foreign.store}" in capsys.readouterr().err


@pytest.mark.parametrize("name", [".git/config", "x/.GIT/hooks/post-checkout", ".git"])
def test_a_file_of_a_repository_of_git_is_refused(foreign: Foreign, tmp_path: Path, name: str) -> None:
    """Its settings name commands, which git runs in that folder."""
    listed = [{"md5": foreign.put(b"{}"), "relpath": one} for one in ("tokenizer.json", name)]
    foreign.list_files(json.dumps(listed).encode())
    foreign.commit()
    with pytest.raises(VersionsError, match=f"found the name '{name}', expected one inside the folder"):
        foreign.fetch(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_programs_beside_a_tokenizer_are_not_kept(
    foreign: Foreign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TOKENIZER.save(tmp_path / "own")
    names = {path.name: path.read_bytes() for path in (tmp_path / "own").iterdir()}
    evil = dict.fromkeys(("conform.py", "modeling.py", "run.sh", ".envrc", "x/.hidden/a.json"), b"print('evil')")
    listed = [{"md5": foreign.put(content), "relpath": name} for name, content in sorted((names | evil).items())]
    foreign.list_files(json.dumps(listed, sort_keys=True).encode())
    foreign.commit()
    foreign.fetch(tmp_path / "out")
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {*names, "conform.py"} and b"evil" not in (tmp_path / "out/conform.py").read_bytes()
    words = "4 files are not kept, as they are no files of a tokenizer: .envrc, modeling.py, run.sh, x/.hidden/a.json"
    assert words in capsys.readouterr().err


def test_what_the_manifest_of_a_dataset_does_not_name_is_not_kept(
    foreign: Foreign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = documents_dataset(tmp_path / "made/tokens", [[[1, 2, 3]], [[4]]], ["megatron"])
    names = {path.relative_to(made).as_posix(): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    evil = dict.fromkeys(("run.sh", ".envrc", "megatron/evil.py"), b"evil")
    listed = [{"md5": foreign.put(content), "relpath": name} for name, content in sorted((names | evil).items())]
    foreign.list_files(json.dumps(listed, sort_keys=True).encode())
    foreign.commit()
    foreign.fetch(tmp_path / "out")
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {*names}
    words = "3 files are not kept, as they are no files of the dataset: .envrc, run.sh, megatron/evil.py"
    assert words in capsys.readouterr().err
