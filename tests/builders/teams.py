"""A team's repositories for tests: a bare git repository, a DVC remote in a folder, and clones."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.builders.in_process import Said
from tests.conftest import Project

IGNORED = "__pycache__\n/data/counts\n/data/quarantine\n/data/tokenizer\n/data/tokens\n/data/report\n/data/tables\n/.tokenmill\n"


@dataclass(frozen=True)
class Team:
    """`project`: a clone with a build that is committed; `bare`: the git repository; `store`: the DVC remote."""

    project: Project
    bare: Path
    store: Path

    def clone(self, name: str) -> Project:
        """Another clone, with nothing from DVC yet."""
        root = self.bare.parent / name
        run(self.bare.parent, "git", "clone", "-q", str(self.bare), str(root))
        identify(root)
        return Project(root)


def run(folder: Path, *command: str) -> str:
    """What a command prints, which must end well."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def identify(root: Path) -> None:
    """Gives git a name and an address."""
    run(root, "git", "config", "user.name", "Team")
    run(root, "git", "config", "user.email", "team@example.org")


def commit(project: Project, message: str = "Change") -> None:
    """Commits everything, and pushes it."""
    run(project.root, "git", "add", "-A")
    run(project.root, "git", "commit", "-q", "-m", message)
    run(project.root, "git", "push", "-q", "origin", "HEAD")


def make_team(project: Project) -> Team:
    """Builds and commits the project, with data/raw under DVC, beside a bare repository and a DVC remote."""
    folder = project.root.parent
    bare, store = folder / "team.git", folder / "store"
    run(folder, "git", "init", "-q", "--bare", str(bare))
    identify(project.root)
    (project.root / ".gitignore").write_text(IGNORED, encoding="utf-8")
    (project.root / "tokenmill.lock").write_text('{"tokenizer": null}\n', encoding="utf-8")
    project.dvc("remote", "add", "-d", "store", str(store))
    project.dvc("config", "core.autostage", "false")
    project.dvc("add", "data/raw")
    project.build()
    run(project.root, "git", "remote", "add", "origin", str(bare))
    commit(project, "First build")
    return Team(project, bare, store)


def copied(team: Team, folder: Path) -> Team:
    """The same repositories in another folder."""
    old = team.bare.parent
    shutil.copytree(old, folder, symlinks=True, dirs_exist_ok=True)
    copy = Team(Project(folder / team.project.root.name), folder / team.bare.name, folder / team.store.name)
    run(copy.project.root, "git", "remote", "set-url", "origin", str(copy.bare))
    config = copy.project.root / ".dvc/config"
    config.write_text(config.read_text(encoding="utf-8").replace(str(old), str(folder)), encoding="utf-8")
    (copy.project.root / ".dvc/config.local").unlink(missing_ok=True)
    commit(copy.project, "Move")
    return copy


def cli(project: Project, *arguments: str) -> Said:
    """Runs `tokenmill` in this process, in the project's folder."""
    return project.cli(*arguments)


def build(project: Project, *arguments: str) -> Said:
    """Runs `tokenmill build` so, and expects it to end well."""
    done = project.cli("build", *arguments)
    assert done.returncode == 0, done.stderr
    return done


def keys(folder: Path, curve: ec.EllipticCurve | None = None) -> tuple[Path, Path]:
    """A private and a public key in PEM."""
    key = ec.generate_private_key(curve or ec.SECP256R1())
    private, public = folder / "key.pem", folder / "pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def findings(project: Project, code: int) -> dict[str, dict[str, str]]:
    """What `tokenmill doctor` finds, by the name of the check; it must end with this code."""
    done = cli(project, "doctor", "--json")
    assert done.returncode == code, done.stdout
    return {one["name"]: one for one in json.loads(done.stdout)["result"]["checks"]}
