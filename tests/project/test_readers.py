"""Whoever may only read a project sees its state and plans a build."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Project

# As root, another user who may read everything and has no name, as in many containers.
AS_A_READER = (
    "setpriv",
    "--reuid=54321",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run([*AS_A_READER, "true"], check=False, capture_output=True).returncode != 0,
    reason="only root can become another user",
)
def test_a_project_that_may_only_be_read_has_a_state_and_a_plan(project: Project, tmp_path: Path) -> None:
    project.build()
    before = files_of(project.root)

    def asked(*command: str) -> "subprocess.CompletedProcess[str]":
        environment = {"HOME": str(tmp_path / "none"), "USER": "", "LOGNAME": "", "TMPDIR": "/tmp"}
        done = project.run(*AS_A_READER, "tokenmill", *command, **environment)
        assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2), done.stderr
        return done

    for command in (("status", "-v"), ("plan",), ("info",), ("verify",), ("locate", "--token", "3")):
        done = asked(*command)
        assert done.returncode == 0, done.stderr
    assert "up to date" in asked("status").stdout
    assert files_of(project.root) == before
    project.set(train_vocab__vocab_size=270)
    assert "train_vocab.vocab_size changed" in asked("status").stdout
    assert "cannot be written, so `tokenmill plan --outcome` will not know this plan" in asked("plan").stderr
    shutil.rmtree(project.root / ".tokenmill")
    assert asked("plan").returncode == 0
    before = files_of(project.root)
    refused = asked("build")
    assert refused.returncode == 2 and "this user may not write into the folder" in refused.stderr
    assert files_of(project.root) == before


def files_of(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*") if path.name != "params.yaml"}
