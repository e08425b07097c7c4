"""Loads the flows of a project from its folder flows/."""

import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenmill.errors import ParamsError


def load_flow(root: Path, name: str, *arguments: object) -> Any:
    """Loads the Prefect flow `name` from the project's flows/NAME.py. Raises ParamsError if it is missing or does not accept these
    arguments."""
    folder = root.resolve()
    path = folder / "flows" / f"{name}.py"
    sys.path.insert(0, str(folder))
    try:
        if not path.is_file():
            raise ImportError("not there; run.engine: threads runs the project's own flow")
        flow = getattr(import_module(f"flows.{name}"), name)
        inspect.signature(flow.fn).bind(*arguments)
    except (ImportError, AttributeError, TypeError) as error:
        raise ParamsError(
            path,
            f"does not fit this tokenmill: {error}.",
            "Compare it with that of a new project (`tokenmill init NEW`), which has the flows and tasks of this "
            "tokenmill, or set run.engine: inline in params.yaml, which runs the stages of dvc.yaml without it.",
            code="TM108",
        ) from error
    finally:
        # Appended, because workers copy this path, and the project may be a clone of tokenmill's repository with another tokenmill.
        sys.path.remove(str(folder))
        sys.path.append(str(folder))
    return flow
