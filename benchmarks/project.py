"""Projects to measure on, and the commands that are run in them."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML

from benchmarks.corpus import documents
from benchmarks.process import ROOT, Run, module_result, timed, timed_command
from tokenmill.corpus.sample import make_sample

ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT),
    "PYTHONDONTWRITEBYTECODE": "",
}
"""The variables of a command in a project: it finds the tools and the code that are measured, and bytecode is cached."""

CORPORA = {
    "english": {},
    "code": {"id_column": "path"},
    "multilingual": {"text_column": "body"},
    "sample": {},
}
"""The corpora, and what params.yaml says of their columns."""

_TEXT_BYTES = 20_000_000
_LETTERS = b"gkpvwyz"  # of no escape, and of no key of the lines


def sharded_project(root: Path, n_shards: int, shard_bytes: int, engine: str, grouped: bool) -> int:
    """A project of so many shards; the bytes of all."""
    empty_project(root, engine, grouped)
    n_bytes = 0
    for i, shard in enumerate(shards(n_shards, shard_bytes)):
        (root / f"data/raw/{i:06}.jsonl").write_bytes(shard)
        n_bytes += len(shard)
    let_files_age()
    return n_bytes


def let_files_age() -> None:
    """Waits: a file as young as its digest is not remembered."""
    time.sleep(2.1)


def empty_project(root: Path, engine: str, grouped: bool) -> None:
    """A project without shards."""
    root.mkdir()
    yaml = YAML(typ="safe", pure=True)
    pipeline = yaml.load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    for stage in pipeline["stages"].values():  # the code is not in the project
        stage["deps"] = [dep for dep in stage["deps"] if dep.startswith("data/")]
    params = yaml.load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["run"]["engine"] = engine
    if not grouped:
        params["source"]["unit_bytes_min"] = 0
    for name, content in (("dvc.yaml", pipeline), ("params.yaml", params)):
        with (root / name).open("w", encoding="utf-8") as file:
            yaml.dump(content, file)
    (root / "data/raw").mkdir(parents=True)
    run(root, "git", "init", "-q")
    run(root, "dvc", "init", "-q")


def corpus_project(root: Path, name: str, shared: Path, engine: str = "inline") -> None:
    """A project with one of the CORPORA, which are in the folder `shared`."""
    empty_project(root, engine, grouped=True)
    change_params(root, {}, "source", CORPORA[name])
    copy_flows(root)
    if name == "sample":
        make_sample(root / "data/raw")
    else:
        shutil.copytree(shared / name, root / "data/raw", dirs_exist_ok=True)


def run_tokenmill(root: Path, *arguments: str) -> Run:
    """Runs a command of tokenmill in a project, in a process of its own; the time is that of the process, with its start."""
    return timed_command([sys.executable, "-m", "tokenmill", *arguments], root, ENVIRONMENT)


def run(root: Path, command: str, *arguments: str) -> None:
    """Runs a command in a project."""
    program = shutil.which(command, path=ENVIRONMENT["PATH"]) or command
    subprocess.run([program, *arguments], cwd=root, env=ENVIRONMENT, check=True)


def change_params(root: Path, top: dict[str, Any], section: str, values: dict[str, Any]) -> None:
    """Changes params.yaml."""
    yaml, path = YAML(typ="safe", pure=True), root / "params.yaml"
    yaml.sort_base_mapping_type_on_output = False  # the order of roles is that of messages
    params = yaml.load(path.read_text(encoding="utf-8")) | top
    params[section] |= values
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(params, file)


def stages_of(project: Path, *arguments: str, before: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Builds in a process of its own, and gives what it says of each stage, by name. `before`: a command that runs the build."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "tokenmill", "build", "--json", "-q", *arguments],
        cwd=project,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    said = done.stdout[done.stdout.index("{\n") :]  # `before` may say something, too
    return {one["stage"]: one for one in json.JSONDecoder().raw_decode(said)[0]["result"]["stages"]}


def build_up_to_encode(root: Path, tokenizer: Path) -> None:
    """Gives a project a tokenizer, which nobody has to learn, and two workers, and builds it up to its encode stage."""
    change_params(root, {"tokenizer": {"from": str(tokenizer.absolute())}}, "run", {"workers": 2})
    for command in ("pin", "build --only count", "build --only train-vocab"):
        run_tokenmill(root, *command.split(), "-q")


def encode_stage(project: Path) -> Run:
    """The encode stage in a process of its own, with an empty unit store. The result is the seconds of the part that a build does
    once for all stages: it looks for mistakes, and loads and checks the tokenizer."""
    shutil.rmtree(project / ".tokenmill/units", ignore_errors=True)
    os.sync()  # what was written before is not this stage's
    return Run(**module_result("benchmarks.project", project, environment=ENVIRONMENT, folder=project))


def _timed(project: Path) -> None:
    """What that process does: prints the fields of a Run."""
    import dvc.repo  # noqa: F401 — imports are not timed
    import pyarrow as pa

    import tokenmill.stages.encode  # noqa: F401
    from tokenmill.artifacts.golden import checked_tokenizer
    from tokenmill.console import console
    from tokenmill.layout import TOKENIZER_DIRECTORY
    from tokenmill.pipeline.pools import Threads
    from tokenmill.pipeline.start import start
    from tokenmill.stages import recipe
    from tokenmill.stages.mistakes import refuse_mistakes

    console.level = -1
    pa.array([0])  # pyarrow imports pandas for its first list where that is installed, and imports are not timed
    one = start(project / "params.yaml", "encode", force=True, rehash=False)

    def load() -> None:
        refuse_mistakes(one)  # which the stage does not do again, nor
        checked_tokenizer(one.root / TOKENIZER_DIRECTORY, one.project.cache_mb_max)

    loading = timed(load)
    running = timed(lambda: one.driver().run(recipe.encode(one), Threads(one.workers)))
    seconds, cpu_s = loading.seconds + running.seconds, loading.cpu_s + running.cpu_s
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "result": loading.seconds}))


def copy_flows(root: Path) -> None:
    """Copies this repository's flows and tasks, which Prefect's engine runs, into a project."""
    for folder in ("flows", "tasks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))


def shards(n_shards: int, shard_bytes: int) -> Iterator[bytes]:
    """JSON lines of about so many bytes a shard; in each pass over the text other letters are changed."""
    lines = [msgspec.json.encode({"id": str(i), "text": text}) + b"\n" for i, text in enumerate(documents(_TEXT_BYTES))]
    at = 0
    for _ in range(n_shards):
        taken: list[bytes] = []
        n_bytes = 0
        while n_bytes < shard_bytes:
            line = lines[at % len(lines)]
            taken.append(line)
            n_bytes += len(line)
            at += 1
        # The number of the pass, digit by digit: by how much the first four letters are moved on.
        n = len(_LETTERS)
        moved = bytes(_LETTERS[(i + at // len(lines) // n**i) % n] for i in range(4))
        yield b"".join(taken).translate(bytes.maketrans(_LETTERS[:4], moved))


if __name__ == "__main__":
    _timed(Path(sys.argv[1]))
