"""Checks this machine, and says how to mend what is wrong."""

import platform
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import tokenmill
from tokenmill.errors import TokenmillError
from tokenmill.pipeline.core_sources import sources_hash
from tokenmill.pipeline.start import refuse_stale_core
from tokenmill.project.diagnosis import Diagnosis
from tokenmill.versioning import git
from tokenmill_reader.shown import without_passwords

_PACKAGE = "tokenmill"
_ANSWER_S_MAX = 3.0


def examine(root: Path | None) -> list[Diagnosis]:
    """Runs all checks of the machine, and of the project at `root` if it is given. Takes a few seconds at most."""
    findings = [python(), libraries(), core(), git_command(root or Path.cwd()), prefect_server()]
    if root is None:
        findings.append(Diagnosis("project", "ok", "none in this folder; `tokenmill init DIR` makes one"))
    else:
        from tokenmill.project.doctor_project import examine_project

        findings += examine_project(root)
    return [replace(finding, found=without_passwords(finding.found)) for finding in findings]


def lines_of(findings: list[Diagnosis]) -> list[str]:
    """One line per check, for a terminal."""
    width = max(len(finding.name) for finding in findings)
    lines = (f"{finding.state:<7}  {finding.name:<{width}}  {' '.join(finding.found.split())}" for finding in findings)
    return [f"{line}. {one.mend}" if one.mend else line for line, one in zip(lines, findings, strict=True)]


def python() -> Diagnosis:
    """The version of Python."""
    return Diagnosis("Python", "ok", platform.python_version())


def libraries() -> Diagnosis:
    """Whether each library has a version that tokenmill requires. The required versions include the security fixes of what
    tokenmill uses, such as prefect 3.6.22 (CVE-2026-3514); pyarrow's CVE-2026-25087 is in a call that Python does not have."""
    from packaging.requirements import Requirement

    try:
        requirements = [Requirement(line) for line in metadata.requires(_PACKAGE) or []]
    except metadata.PackageNotFoundError:
        return Diagnosis(
            "libraries", "warning", "tokenmill is not installed, so its requirements are unknown", "Install it."
        )
    requirements = [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    others = {}
    for requirement in requirements:
        try:
            if (version := metadata.version(requirement.name)) not in requirement.specifier:
                others[f"{requirement.name} {version}"] = requirement
        except metadata.PackageNotFoundError:
            others[f"no {requirement.name}"] = requirement
    if not others:
        return Diagnosis(
            "libraries", "ok", f"tokenmill {tokenmill.__version__} and its {len(requirements)} requirements"
        )
    wanted = " ".join(f"'{other}'" for other in others.values())
    return Diagnosis(
        "libraries", "wrong", f"{', '.join(others)}: tokenmill requires other versions", f"pip install {wanted}"
    )


def core() -> Diagnosis:
    """Whether the compiled core matches the sources in core/, if they are there."""
    try:
        refuse_stale_core()
    except TokenmillError as error:
        return Diagnosis("core", "wrong", str(error))
    return Diagnosis("core", "ok", "as installed" if sources_hash() is None else "compiled from the sources in core/")


def git_command(folder: Path) -> Diagnosis:
    """Whether git is installed and has a name and address for commits."""
    try:
        version = git.git(folder, "--version").split()[2]
    except TokenmillError as error:
        return Diagnosis("git", "wrong", str(error))
    try:
        return Diagnosis("git", "ok", f"{version}, commits as {git.identity(folder)}")
    except TokenmillError as error:
        return Diagnosis("git", "warning", f"{version}, {error.what.rstrip('.')}", error.fix)


def prefect_server() -> Diagnosis:
    """Whether the configured Prefect server answers. It is fine if none is configured."""
    none = Diagnosis("Prefect", "ok", "no server is set; a build starts one for itself, unless run.engine is inline")
    from tokenmill.orchestration import address

    try:
        url = address.check_standing(_ANSWER_S_MAX)
    except TokenmillError as error:
        return Diagnosis("Prefect", "wrong", str(error))
    return Diagnosis("Prefect", "ok", f"the server at {address.shown(url)} answers") if url else none
