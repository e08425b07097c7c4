"""Builds and checks with a chat template that never ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders.chats import LOOPS
from tests.builders.talks import TALKS, hold_talks, messages
from tests.builders.teams import build, cli
from tests.conftest import Project
from tests.times import PATIENCE_S
from tokenmill.chat import isolated
from tokenmill.dataset.manifest import read_manifest, write_manifest

_SAFE = "{% for m in messages %}<|im_start|>{{ m.role }}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% endfor %}"
_LATE = "{% if messages[0].content == 'late' %}" + LOOPS + "{% endif %}" + _SAFE
_FIRST = LOOPS + _SAFE


@pytest.fixture
def talks(project: Project) -> Project:
    return hold_talks(project)


def _with_template(project: Project, template: str) -> None:
    talk = messages(TALKS["a.jsonl"][0])
    late = [{"role": "user", "content": "late"}, talk[1]]
    lines = [json.dumps({"id": str(i), "messages": late if i == 40 else talk}) + "\n" for i in range(41)]
    (project.root / "data/raw/c.jsonl").write_text("".join(lines), encoding="utf-8")
    (project.root / "chat.jinja").write_text(template, encoding="utf-8")
    project.set(encode__chat={"template": "chat.jinja"})
    project.depend("chat.jinja", "train-vocab", "encode")


@pytest.mark.slow
def test_a_unit_whose_template_never_ends_is_ended_at_its_time_limit(talks: Project) -> None:
    _with_template(talks, _LATE)
    talks.set(run__unit_timeout_s=3)
    began = time.monotonic()
    done = cli(talks, "build")
    assert done.returncode == 2
    assert "encode data/raw/c.jsonl: not done after 3 s" in done.stderr
    (talks.root / "chat.jinja").write_text(_FIRST, encoding="utf-8")
    done = cli(talks, "build")
    assert done.returncode == 2
    assert "a.jsonl: its first conversations are not rendered after 3 s" in done.stderr
    assert time.monotonic() - began < isolated.SECONDS_MAX
    _with_template(talks, _SAFE)
    build(talks)


def _rendering(pid: int) -> list[int]:
    """The processes in which a process renders."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(one) for one in children if b"tokenmill.chat.isolated" in Path(f"/proc/{one}/cmdline").read_bytes()]


@pytest.mark.slow
@pytest.mark.parametrize(("template", "number", "code"), [(_LATE, signal.SIGTERM, 143), (_FIRST, signal.SIGINT, 130)])
def test_a_signal_ends_a_build_whose_template_never_ends(
    talks: Project,
    template: str,
    number: int,
    code: int,
) -> None:
    _with_template(talks, template)
    command = [str(Path(sys.executable).parent / "tokenmill"), "build"]
    with subprocess.Popen(command, cwd=talks.root, env=os.environ, stderr=subprocess.PIPE, text=True) as process:
        while not (found := _rendering(process.pid)):
            assert process.poll() is None
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(number)
        said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == code, said
    assert not [one for one in found if Path(f"/proc/{one}").exists()]


@pytest.mark.slow
def test_verify_ends_although_the_template_in_a_copy_never_does(
    talks: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _with_template(talks, _SAFE)
    build(talks)
    tokens = talks.root / "data/tokens"
    manifest = read_manifest(tokens)
    assert manifest.chat is not None
    write_manifest(manifest.model_copy(update={"chat": manifest.chat.model_copy(update={"template": _FIRST})}), tokens)
    isolated.end_all()
    monkeypatch.setattr(isolated, "SECONDS_MAX", 1)
    done = cli(talks, "verify")
    isolated.end_all()
    assert done.returncode != 0
    assert "the chat template takes more than 1 s for it" in done.stdout + done.stderr
