"""Records of what benchmarks measured: benchmarks/record/DATE-CPU.json, one file for a day and a processor.

A benchmark replaces its own section of the day's file and leaves the others. The schema, version 1:

    schema_version    1
    date              the day, like 2026-11-24 (UTC)
    machine           cpu (the model's name), cpu_family_and_model, has_avx512, cores, memory_mb, os, python
    sections          by name: train, encode (one core), encode_2 (two), encode_published, encode_stage, threads, build,
                      first_build, task, hard, count, reader, file_sets, file_sets_others, chat, verify, remap, scale, clusters,
                      clusters_many, storage
        started       when the benchmark began (UTC)
        commit        the commit that was measured; is_dirty says whether files of the code differed from it
        load_at_start processes that were running or waiting on the machine, on average over the minute before; load_at_end
        arguments     those of the command line, with the defaults
        versions      of every tool that was compared, tokenmill included
        cells         a list, one for each thing that was measured

A cell names what was measured (text, text_bytes, tool, cores, vocab_size, …) and holds every run, in the order in which they
were made, in lists whose names end in the unit:

    runs_s         seconds
    runs_cpu_s     seconds of processor time, of all threads; other work on the machine changes it less
    runs_mb_per_s  10^6 bytes of text a second
    runs_peak_mb   10^6 bytes, the most that the process held

Times of one kind among several have it in their name: runs_first_s, runs_later_s. `answer` says whether the tool's answer was
checked before its time counted: "same" (as that of the tokenizers library), "not compared", or "other", and then there are no
runs. A tool that did not run has `failed`, with its message, and no runs.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DIRECTORY = ROOT / "benchmarks/record"
SCHEMA_VERSION = 1
_CODE = ("benchmarks/*.py", "core", "tokenmill", "flows", "tasks", "params.yaml", "dvc.yaml")


def begin(name: str, packages: Sequence[str], asked: argparse.Namespace) -> dict[str, Any]:
    """A section without cells, taken before anything is measured; it is printed, too."""
    import tokenmill

    given = vars(asked).items()  # without paths, which are those of one machine
    arguments = {key: value for key, value in given if value is not None and not isinstance(value, Path)}
    section = {
        "name": name,
        "started": f"{datetime.now(UTC):%F %H:%M:%S}",
        "commit": _git("rev-parse", "HEAD"),
        "is_dirty": bool(_git("status", "--porcelain", "--", *_CODE)),
        "load_at_start": round(os.getloadavg()[0], 2),
        "arguments": json.loads(json.dumps(arguments, default=str)),
        "versions": {"tokenmill": tokenmill.__version__, **{package: version(package) for package in packages}},
        "cells": [],
    }
    machine = machine_of()
    print(
        f"commit {section['commit'][:12]}{', changed' if section['is_dirty'] else ''}; {machine['cpu']}, "
        f"{machine['cores']} cores, load {section['load_at_start']}; Python {machine['python']}; "
        + " ".join(f"{package} {version}" for package, version in section["versions"].items()),
        flush=True,
    )
    return section


def keep(section: dict[str, Any], directory: Path) -> Path:
    """Puts the section into the day's file, in the place of an earlier one of its name; the file is what comes back."""
    section = section | {"load_at_end": round(os.getloadavg()[0], 2)}
    machine = machine_of()
    day = section["started"][:10]
    path = directory / f"{day}-{slug_of(machine['cpu'])}.json"
    record = {"schema_version": SCHEMA_VERSION, "date": day, "machine": machine, "sections": {}}
    if path.is_file():
        record["sections"] = json.loads(path.read_text(encoding="utf-8"))["sections"]
    record["sections"][section["name"]] = {key: value for key, value in section.items() if key != "name"}
    record["sections"] = dict(sorted(record["sections"].items()))
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(_text_of(record), encoding="utf-8")
    print(f"\nrecorded in {path}", file=sys.stderr)
    return path


def newest(directory: Path = DIRECTORY) -> dict[str, Any]:
    """The sections of all records, of each name the newest, each with `date` and `machine` of its record."""
    found: dict[str, Any] = {}
    for path in directory.glob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        assert record["schema_version"] == SCHEMA_VERSION, f"{path}: schema_version is not {SCHEMA_VERSION}"
        for name, section in record["sections"].items():
            if name not in found or found[name]["started"] < section["started"]:
                found[name] = section | {"date": record["date"], "machine": record["machine"]}
    return found


def seconds(runs: Iterable[float]) -> list[float]:
    """Seconds as they are recorded: to the microsecond."""
    return [round(one, 6) for one in runs]


def mb_per_s(n_bytes: int, runs: Iterable[float]) -> list[float]:
    """Speeds as they are recorded."""
    return [round(n_bytes / 1e6 / one, 2) for one in runs]


def speeds(cell: dict[str, Any], kind: str) -> list[float]:
    """The runs of a cell of encoding, in MB of text a second: of processor time on one core, which does not count the time in
    which others had the core, and of time on several. `kind`: "first" or "later" passes."""
    on = "s" if cell["cores"] > 1 else "cpu_s"
    return [cell["text_bytes"] / 1e6 / one for one in cell.get(f"runs_{kind}_{on}", ())]


def machine_of() -> dict[str, Any]:
    """What there is to know of this machine."""
    cpu: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        cpu.setdefault(key.strip(), value.strip())
    return {
        "cpu": cpu.get("model name", platform.machine()),
        "cpu_family_and_model": f"{cpu.get('cpu family', '?')} {cpu.get('model', '?')}",
        "has_avx512": "avx512f" in cpu.get("flags", "").split(),
        "cores": os.cpu_count(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 10**6,
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def slug_of(cpu: str) -> str:
    """The processor's name for the name of a file.

    >>> slug_of("Intel(R) Xeon(R) CPU @ 2.20GHz")
    'intel-xeon-cpu-2-20ghz'
    """
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", cpu.lower())).strip("-")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _text_of(record: dict[str, Any]) -> str:
    """Indented JSON, but a list of numbers on one line."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    return (
        re.sub(r"\[[\d.,\s-]+\]", lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
        + "\n"
    )
