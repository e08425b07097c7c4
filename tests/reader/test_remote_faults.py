"""Readers of a remote dataset are killed in mid-epoch and go on in other numbers, from a server that fails all the time."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

import tokenmill
from tests.builders.document_sets import documents_dataset
from tests.builders.object_server import serving
from tests.builders.s3_server import environment
from tests.conftest import REPOSITORY
from tokenmill.dataset.manifest import read_manifest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

N_PARTS, PER_PART = 24, 400
LENGTH = 64

# In step: it takes the next item for each line of its input, and says what it is and what the state is then.
READ = """
import json, sys, tokenmill_reader

url, cache, limit, rank, world, state = sys.argv[1:7]
dataset = tokenmill_reader.open(url, cache=cache, cache_bytes=int(limit)).sequences(64).shuffle(seed=5, block=4)
items = dataset.shard(int(rank), int(world))
if state != "null":
    items.load_state_dict(json.loads(state))
for _ in sys.stdin:
    ids = next(items, None)
    print(json.dumps([None if ids is None else ids.tolist(), items.state_dict()]), flush=True)
"""


class Rank:
    """A process that reads the share of a rank."""

    def __init__(self, url: str, cache: Path, limit: int, rank: int, world: int, state: Any) -> None:
        given = [url, str(cache), str(limit), str(rank), str(world), json.dumps(state)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", READ, *given],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self) -> None:
        stdin: IO[str] | None = self.process.stdin
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()

    def answer(self) -> tuple[list[int] | None, Any]:
        assert self.process.stdout is not None
        ids, state = json.loads(self.process.stdout.readline())
        return ids, state

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def test_killed_readers_go_on_in_other_numbers_and_read_the_undisturbed_order(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    parts = [random.integers(0, 60_000, (PER_PART, 90)).tolist() for _ in range(N_PARTS)]
    local = documents_dataset(tmp_path / "tokens", parts, ["arrow"])
    digest = read_manifest(local).digest[:16]
    shutil.copytree(local, tmp_path / "server/bucket" / digest / "tokens")
    n_bytes = sum(path.stat().st_size for path in (local / "arrow").iterdir())
    expected = [one.tolist() for one in tokenmill.open(local, format="arrow").sequences(LENGTH).shuffle(5, block=4)]
    found: list[list[int]] = []
    state: Any = None
    with serving(tmp_path / "server") as server, environment(server.url, tmp_path):
        server.faults.shares = (0.15, 0.15, 0.3)
        name = f"bucket/{digest}/tokens/arrow/part-00007.arrow"
        server.faults.damaged = {name: 1}
        for world, n_rounds in ((2, len(expected) // 5), (3, len(expected) // 6), (1, len(expected))):
            ranks = [
                Rank(f"s3://bucket/{digest}", tmp_path / "cache", n_bytes // 2, rank, world, state)
                for rank in range(world)
            ]
            for _ in range(n_rounds):
                for rank in ranks:
                    rank.ask()
                answers = [rank.answer() for rank in ranks]
                found += [ids for ids, _ in answers if ids is not None]
                states = [one for _, one in answers]
                assert all(one == states[0] for one in states)
                state = states[0]
                if any(ids is None for ids, _ in answers):
                    break
            for rank in ranks:
                rank.ask()  # so that it is killed while it reads
                rank.kill()
        assert server.faults.damaged[name] == 0
    assert found == expected
    held = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.arrow*") if ".locks" not in path.parts)
    assert held <= n_bytes // 2
