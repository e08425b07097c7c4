"""Publishing as a Prefect flow."""

from pathlib import Path

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from tokenmill.build import alone
from tokenmill.tasks import publish as steps

check = task(cache_policy=NO_CACHE, persist_result=False)(steps.check)
push_data = task(cache_policy=NO_CACHE, persist_result=False)(steps.push_data)
set_tags = task(cache_policy=NO_CACHE, persist_result=False)(steps.set_tags)


@flow(name="tokenmill-publish", flow_run_name="publish {reference}", persist_result=False)
def publish(
    reference: str, project: str = ".", stage: str | None = None, remote: str | None = None, key: str | None = None
) -> list[str]:
    """Publishes NAME@VERSION of the project in the folder `project` (see tasks.publish); the tags that were set."""
    root = Path(project).absolute()
    with alone(root, wait=False):
        publication = check(root, reference, stage)
        push_data(publication, remote)
        tags: list[str] = set_tags(publication, None if key is None else Path(key))
    return tags
