"""The publication of a version of this project: check, push the data, set the tags."""

from pathlib import Path

from prefect import flow

from tasks.publish import check, push_data, set_tags
from tokenmill.flow import alone


@flow(name="tokenmill-publish", flow_run_name="publish {reference}", persist_result=False)
def publish(
    reference: str, project: str = ".", stage: str | None = None, remote: str | None = None, key: str | None = None
) -> list[str]:
    """Publishes NAME@VERSION of the project in the folder `project`, and gives the git tags that were set.

    `stage`: the GTO stage to assign. `remote`: the DVC remote; None: DVC's default. `key`: the file of a private key to sign
    with.
    """
    root = Path(project).absolute()
    with alone(root, wait=False):
        publication = check(root, reference, stage)
        push_data(publication, remote)
        tags: list[str] = set_tags(publication, None if key is None else Path(key))
    return tags
