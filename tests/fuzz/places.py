"""What is fuzzed in storage places, repositories, caches and servers of others: only what was published may come from them."""

import hashlib
import json
import os
import shutil
import stat
from contextlib import nullcontext
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import tokenmill
from tests.builders.document_sets import documents_dataset
from tests.builders.object_server import ObjectServer, serving
from tests.builders.teams import identify, run
from tests.builders.trained import TOKENIZER
from tests.conftest import make_project
from tests.fuzz.changes import ODD_NAMES, change_json, changed_bytes, put_link
from tests.fuzz.targets import Try
from tokenmill.features.share.download import download
from tokenmill.features.share.upload import upload
from tokenmill.versioning.registry import Reference, fetch_version, find_version

_SECRET = "of nobody else"
_PROGRAM = b"print('of others')"
_TAGS = [os.fsdecode(b"a\xff"), "a\u2028b@v1", "tokenizer@v1.0.0!", "tokenizer#prod#1"]
_MANY_BYTES = 1 << 26
_NAMES = (
    "../x",
    "/x",
    "x",
    ".git/config",
    "dvc.yaml",
    "flows/build.py",
    "tokenizer/conform.py",
    "tokenizer/x.py",
    "tokens/x",
)


def uploads(base: Path) -> Try:
    """Places with a changed upload.json, or with further files that it lists by their right digests."""
    project = make_project(base / "project")
    project.build()
    identify(project.root)
    run(project.root, "git", "add", "-A")
    run(project.root, "git", "commit", "-q", "-m", "Build")
    (base / "place").mkdir()
    there = Path(upload(project.root, str(base / "place")).url)
    published = {path.relative_to(there): path.read_bytes() for path in there.rglob("*") if path.is_file()}
    shutil.copytree(there, outside := base / "outside")
    (outside / "tokens/manifest.json").unlink()  # it is read first, and has the digest that the folder's name says

    def attempt(chance: Random, folder: Path) -> None:
        shutil.copytree(there, place := folder / there.name)
        listed = json.loads((place / "upload.json").read_bytes())
        for name in chance.sample(_NAMES, chance.choice([0, 0, 1, 2])):
            content = b"another"
            (place / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (place / name.lstrip("/")).write_bytes(content)
            kept = [entry for entry in listed["beside"] if entry[0] != name]
            listed["beside"] = [*kept, [name, len(content), hashlib.sha256(content).hexdigest()]]
        if chance.random() < 0.7:
            change_json(chance, listed, _NAMES)
        (place / "upload.json").write_text(json.dumps(listed))
        if chance.random() < 0.2:
            changed = place / chance.choice(sorted(published))
            changed.write_bytes(changed_bytes(chance, changed.read_bytes()))
        if chance.random() < 0.1:
            put_link(chance, place, outside)
        if chance.random() < 0.1:
            (place / chance.choice(["", "tokens"]) / chance.choice(ODD_NAMES)).write_text("")
        try:
            download(str(place), folder / "there")
        finally:
            found = {path.relative_to(folder / "there") for path in (folder / "there").rglob("*") if path.is_file()}
            cards = {Path("tokens/README.md"), Path("README.md")}
            for path in found - cards:
                assert published.get(path) == (folder / "there" / path).read_bytes(), f"{path} was not published"

    return attempt


def repositories(base: Path) -> Try:
    """Repositories of others, whose files of DVC are changed: in their values, their keys, and what refers to this machine."""
    store, clone, secret = base / "store", base / "clone", base / "secret/tokenizer.json"
    (clone / ".dvc").mkdir(parents=True)
    run(clone, "git", "init", "-q")
    identify(clone)
    secret.parent.mkdir()
    secret.write_text(_SECRET)

    def put(content: bytes, end: str = "") -> str:
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        path = store / "files/md5" / md5[:2] / (md5[2:] + end)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return md5 + end

    TOKENIZER.save(base / "tokenizer")
    listed = [{"md5": put(path.read_bytes()), "relpath": path.name} for path in sorted((base / "tokenizer").iterdir())]
    listed += [{"md5": put(_PROGRAM), "relpath": name} for name in ("conform.py", "x.py", ".config/x.json")]

    def entry_of(files: list[dict[str, str]]) -> dict[str, str]:
        files = sorted(files, key=itemgetter("relpath"))
        return {"md5": put(json.dumps(files).encode(), ".dir"), "hash": "md5", "path": "tokenizer"}

    out = entry_of(listed)
    odd_outs = [entry_of([*listed, {"md5": put(b""), "relpath": f"{name}.txt"}]) for name in ODD_NAMES]
    stage = {"cmd": f"touch {base}/ran", "outs": ["tokenizer"]}
    documents: dict[str, Any] = {
        "dvc.yaml": {"artifacts": {"tokenizer": {"path": "tokenizer", "type": "model"}}, "stages": {}},
        "tokenizer.dvc": {"outs": [out]},
        "dvc.lock": {"schema": "2.0", "stages": {}},
    }
    (base / "aws").write_text(f"[profile x]\nregion = x\ncredential_process = touch {base}/ran\n")
    profile = [f"configpath = {base}/aws", "profile = x", "endpointurl = http://127.0.0.1:9"]
    here = [str(secret.parent), f"file://{secret.parent}", "s3://bucket/x", "../secret", f"touch {base}/ran"]
    more: list[dict[str, Any]] = [
        {"deps": [{"path": str(secret.parent)}], "frozen": True},
        {"deps": [{"path": "tokenizer", "repo": {"url": str(base / "other")}}], "frozen": True},
        {"deps": [{"path": "s3://bucket/x", "fs_config": {"configpath": "aws", "profile": "x"}}], "frozen": True},
        {"outs": [{"path": str(secret.parent)}]},
        {"outs": [{"path": "tokenizer"}]},
        {"stages": {"a": stage}},
        {"cmd": stage["cmd"]},
        {"wdir": "../secret"},
    ]

    def attempt(chance: Random, folder: Path) -> None:
        shutil.copytree(clone, root := folder / "clone")
        for name, document in documents.items():
            changed = json.loads(json.dumps(document))
            if name == "tokenizer.dvc" or chance.random() < 0.3:
                if chance.random() < 0.1:
                    changed["outs"] = [dict(chance.choice(odd_outs))]
                for entry in chance.sample(more, chance.choice([0, 1, 2, 3])):
                    changed |= json.loads(json.dumps(entry))
                if chance.random() < 0.7:
                    change_json(chance, changed, here)
            (root / name).write_text(json.dumps(changed))
        settings = ["[core]", "remote = store", "['remote \"store\"']", f"url = {store}"]
        if chance.random() < 0.3:
            key = chance.choice(
                ["url", "credentialpath", "password", "ask_password", "type", "remote", "shared", "configpath"]
            )
            settings.insert(chance.randrange(len(settings) + 1), f"{key} = {chance.choice(here)}")
        if chance.random() < 0.1:
            settings[3:] = ["url = s3://bucket/x", *chance.sample(profile, chance.choice([2, 3]))]
        (root / ".dvc/config").write_text("\n".join(settings))
        if chance.random() < 0.1:
            (root / f"{chance.choice(ODD_NAMES)}.dvc").write_text("{}")
        run(root, "git", "add", "-fA")
        run(root, "git", "commit", "-q", "-m", "Change")
        run(root, "git", "tag", "-a", "tokenizer@v1.0.0", "-m", "v1.0.0")
        if chance.random() < 0.1:
            run(root, "git", "tag", chance.choice(_TAGS))
        try:
            fetch_version(find_version(str(root), Reference("tokenizer", "v1.0.0"), folder), folder / "there")
        finally:
            assert not (base / "ran").exists(), "a command of the repository ran"
            found = [path for path in (folder / "there").rglob("*") if path.is_file()]
            assert not any(path.read_bytes() == _PROGRAM for path in found), "a program of the repository was kept"
            assert not any(path.read_text(errors="replace") == _SECRET for path in found), (
                "a file of this machine was fetched"
            )

    return attempt


def caches(base: Path) -> Try:
    """A cache folder that somebody else has changed, and a server that answers with something else. A dataset that can be opened
    has the items that were published."""
    documents = [[[1, 2, 3], [4]], [[5, 6]], [[7] * 99]]
    made = documents_dataset(base / "made/tokens", documents, ["arrow", "megatron", "parquet"])
    digest = json.loads((made / "manifest.json").read_bytes())["digest"][:16]
    made.parent.rename(base / digest)
    expected = [ids for part in documents for ids in part]
    outside = base / "outside"
    outside.write_text(_SECRET)

    def items(url: str, cache: Path, format: str, server: ObjectServer | None = None, n_more: int = 0) -> None:
        opened = tokenmill.open(url, cache=cache, format=format)
        if server is not None:
            server.faults.n_more = n_more
        found = [one.tolist() for one in opened]
        assert found == expected, f"other items: {found!r:.200}"

    def attempt(chance: Random, folder: Path) -> None:
        cache, format = folder / "cache", chance.choice(["arrow", "megatron", "parquet"])
        shutil.copytree(base / digest, folder / digest)
        with serving(folder) if chance.random() < 0.3 else nullcontext() as server:
            if isinstance(server, ObjectServer):
                name = chance.choice(sorted(path for path in (folder / digest).rglob("*") if path.is_file()))
                if chance.random() < 0.7:
                    name.write_bytes(changed_bytes(chance, name.read_bytes()))
                n_more = chance.choice([0, 0, 1, _MANY_BYTES])
                server.faults.n_more = n_more if chance.random() < 0.3 else 0
                try:
                    items(f"{server.url}/{digest}", cache, format, server, n_more)
                finally:
                    del server.sent[f"{digest}/tokens/manifest.json"]  # nobody knows how large it is
                    assert max(server.sent.values(), default=0) < _MANY_BYTES, "all was taken that the server sent"
                return
            items(f"file://{folder / digest}", cache, format)
            for path in chance.sample(kept := sorted(cache.rglob("*")), chance.choice([1, 1, 2, min(4, len(kept))])):
                _put_elsewhere(chance, path, outside)
            items(f"file://{folder / digest}", cache, format)
        assert outside.read_text() == _SECRET, "a file outside of the cache was written"
        for path in (cache / digest, *(path for path in (cache / digest).iterdir() if path.is_dir())):
            facts = path.lstat()
            is_own = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077
            assert is_own, f"the folder {path} may be written into by others, and was used"

    return attempt


def _put_elsewhere(chance: Random, path: Path, outside: Path) -> None:
    """Changes a file or a folder, or puts something of another kind in its place."""
    if not os.path.lexists(path):
        return
    content = path.read_bytes() if path.is_file() else b""
    match chance.choice(["bytes", "bytes", "mode", "owner", "link", "fifo", "folder", "partial", "gone"]):
        case "bytes" if path.is_file():
            path.chmod(0o644)
            path.write_bytes(changed_bytes(chance, content))
            return
        case "mode":
            path.chmod(chance.choice([0o777, 0o666, 0o700]))
            return
        case "owner" if os.geteuid() == 0:
            os.chown(path, 1, 1)
            return
        case "partial":
            path.with_name(f"{path.name}.partial").write_bytes(content)
            return
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    match chance.choice(["link", "fifo", "folder", "gone"]):
        case "link":
            path.symlink_to(chance.choice([outside, outside.parent, path]))
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
