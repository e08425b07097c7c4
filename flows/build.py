"""The build of this project: count → train-vocab → encode → validate. Change it as your data needs."""

from prefect import State, flow

from tasks.count import count
from tasks.encode import encode
from tasks.train_vocab import train_vocab
from tasks.validate import validate
from tokenmill.flow import FLOW, Build, StageSummary, build_name, run_build


def stages(build: Build) -> None:
    """Brings every stage up to date, in this order. Add a stage of your own here and in dvc.yaml."""
    count(build)
    train_vocab(build)
    encode(build)
    validate(build)


@flow(name="tokenmill-build", flow_run_name=build_name, **FLOW)
def build(
    project: str = ".", only: str | None = None, force: bool = False, rehash: bool = False
) -> list[StageSummary] | State[None]:
    """Builds the project in the folder `project`, and gives a summary of each stage.

    `only`: build one stage. `force`: run stages and units again even if they are up to date. `rehash`: hash files again even
    if they seem unchanged.
    """
    return run_build(stages, project, only, force, rehash)
