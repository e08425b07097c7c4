"""Refuses to publish a tokenizer for which a library of publish.conform gives other ids."""

from pathlib import Path

from tokenmill.config.params import Params
from tokenmill.errors import VersionsError
from tokenmill.layout import TOKENIZER_DIRECTORY


def refuse_other_ids(root: Path, params: Params) -> None:
    """Raises VersionsError unless each library of publish.conform gives the ids of the project's tokenizer."""
    if not params.publish.conform:
        return
    from tokenmill.features.conform.libraries import conform

    results = conform(root / TOKENIZER_DIRECTORY, params.publish.conform)
    if wrong := [result for result in results if result.verdict != "same"]:
        named = [f"{result.consumer} {result.verdict}{f' ({result.why})' if result.why else ''}" for result in wrong]
        raise VersionsError(
            "publish.conform",
            f"not every library gives the ids of {TOKENIZER_DIRECTORY}: {', '.join(named)}.",
            "Install what is missing, change the tokenizer, or take the library out of publish.conform.",
            code="TM407",
        )
