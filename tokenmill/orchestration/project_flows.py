"""Loads the flows of a project from its folder flows/."""

import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenmill.errors import ParamsError

_PARAMETERS = {
    "build": ("project", "only", "force", "rehash"),
    "refresh": ("project",),
    "publish": ("reference", "project", "stage", "remote", "key"),
}
_REMEDY = (
    "Compare it with that of a new project (`tokenmill init NEW`), which has the flows and tasks of this tokenmill, or set "
    "run.engine: inline in params.yaml, which runs tokenmill's own stages."
)


def load_flow(root: Path, name: str) -> Any:
    """The Prefect flow `name` from the project's flows/NAME.py. Raises ParamsError if it is missing or does not fit."""
    path = root.resolve() / "flows" / f"{name}.py"
    if not path.is_file():
        raise ParamsError(
            f"{path}: not there; run.engine: threads runs the project's own flow. {_REMEDY}", code="TM108"
        )
    for module in [one for one in sys.modules if one.split(".")[0] in ("flows", "tasks")]:
        if not str(getattr(sys.modules[module], "__file__", None)).startswith(f"{root.resolve()}/"):
            del sys.modules[module]  # it belongs to another project, or to another package of that name
    if str(root.resolve()) not in sys.path:
        sys.path.insert(0, str(root.resolve()))
    try:
        flow = getattr(import_module(f"flows.{name}"), name)
        found = tuple(inspect.signature(flow.fn).parameters)
    except (ImportError, AttributeError, TypeError) as error:
        raise ParamsError(f"{path}: does not fit this tokenmill: {error}. {_REMEDY}", code="TM108") from error
    expected = _PARAMETERS[name]
    if found[: len(expected)] != expected:
        raise ParamsError(
            f"{path}: the flow takes {', '.join(found) or 'nothing'}; expected {', '.join(expected)}. {_REMEDY}",
            code="TM108",
        )
    return flow
