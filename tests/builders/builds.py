"""Builds that are watched, and what a build says that it did."""

from collections.abc import Callable
from functools import partial

from tests.conftest import Project
from tokenmill.pipeline.alone import alone
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.pools import Threads
from tokenmill.pipeline.start import start
from tokenmill.rounds import Stage
from tokenmill.stages import recipe
from tokenmill.summary import StageSummary


def units_done(stderr: str, stage: str) -> str:
    """How many units of a stage a build did."""
    for line in stderr.splitlines():
        if line.startswith(f"{stage}: ") and "units to do" in line:
            return line.split(": ", 1)[1].split(" units", 1)[0]
    return "all"


def build_while(project: Project, arrive: Callable[[str], object]) -> list[StageSummary]:
    """A build in which `arrive` is called before each stage, while it runs, and after the last one."""

    def stage(name: str, work: Callable[[Build], Stage], build: Build) -> Stage:
        done = yield from work(build)
        arrive(f"in {name}")
        return done

    with alone(project.root, wait=False):
        build = start(project.root / "params.yaml", None, False, False)
        arrive("before count")
        for name, work in (("count", recipe.count), ("encode", recipe.encode), ("validate", recipe.validate)):
            if name == "encode":
                build.stage("train-vocab", recipe.train_vocab, Threads(1))
            build.stage(name, partial(stage, name, work), Threads(2))
            arrive(f"after {name}")
        return build.finished()
