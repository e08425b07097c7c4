"""Writes what the wheel says of other people's work: the licence texts of the crates in the compiled core (THIRD-PARTY.txt), and
the Python packages that it was tested with (python.cyclonedx.json; maturin adds the crates). `make lock` runs it. With --check, as
in `make lint`, it only tells whether the two files are those of Cargo.lock and requirements.lock."""

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_TEXTS = ("licen", "unlicen", "notice", "copyright")  # how the names of their files begin
_HEAD = (
    "tokenmill's compiled core contains the crates below, which are other people's work. Where a crate offers several licences\n"
    "and one of them is MIT, this is its text. The standard library of Rust is in it as well (MIT or Apache-2.0).\n"
)


def licences() -> str:
    """The licence texts, each once, with the crates that have it. Raises FileNotFoundError for a crate without one."""
    crates = {f"{one['name']} {one['version']}": one for one in _linked_crates()}
    crates_of: dict[str, list[str]] = defaultdict(list)
    texts: dict[str, str] = {}
    for title, crate in sorted(crates.items()):
        folder = Path(crate["manifest_path"]).parent
        files = sorted(path for path in folder.rglob("*") if path.name.lower().startswith(_TEXTS) and path.is_file())
        if " OR " in crate["license"] and (chosen := [path for path in files if "mit" in path.stem.lower().split("-")]):
            files = chosen + [path for path in files if "unicode" in path.name.lower()]
        if not files:
            raise FileNotFoundError(f"{title}: {folder} has no licence text.")
        for text in (path.read_text(encoding="utf-8").strip() for path in files):
            texts.setdefault(" ".join(text.split()), text)
            crates_of[" ".join(text.split())].append(f"{title} ({crate['license']})")
    parts = ["\n".join(dict.fromkeys(crates_of[key])) + f"\n\n{text}\n" for key, text in texts.items()]
    return f"\n{'=' * 100}\n\n".join([_HEAD, *parts])


def _linked_crates() -> list[dict[str, Any]]:
    """What cargo says of each crate that is linked; those that only run while it compiles are left out."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--features", "python"]
    command += ["--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path", str(HERE / "Cargo.toml")]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    packages = {one["id"]: one for one in found["packages"]}
    nodes = {one["id"]: one for one in found["resolve"]["nodes"]}
    root = found["resolve"]["root"]
    linked, waiting = set(), [root]
    while waiting:
        if (id := waiting.pop()) not in linked and packages[id]["targets"][0]["kind"] != ["proc-macro"]:
            linked.add(id)
            waiting += [
                one["pkg"] for one in nodes[id]["deps"] if any(kind["kind"] is None for kind in one["dep_kinds"])
            ]
    return [packages[id] for id in linked - {root}]


def python_packages() -> str:
    """The packages that the wheel and its extras ask for, and those that these ask for, as CycloneDX."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != "dev" for line in lines]
    versions, asked_by = {}, defaultdict(set)
    for line in (HERE.parent / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if pinned := re.match(r"([a-z0-9-]+)==(\S+)", line):
            name = pinned[1]
            versions[name] = pinned[2]
        elif versions and (by := re.match(r"    #\s+(?:via )?([a-z0-9-]+)$", line)):
            asked_by[name].add(by[1])
    names = {re.split(r"[\[<>=;, ]", line)[0] for line in [*project["dependencies"], *extras]}
    while more := {name for name, by in asked_by.items() if by & names} - names:
        names |= more
    components = [
        {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
        for name, version in versions.items()
        if name in names
    ]
    of = {"type": "library", "name": project["name"], "version": project["version"]}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": of}}
    lines = ",\n".join(json.dumps(one) for one in components)
    return f'{json.dumps(head)[:-1]}, "components": [\n{lines}\n]}}\n'


def main() -> int:
    """Writes the two files; with --check 1 if one is not as it should be."""
    made = {HERE / "THIRD-PARTY.txt": licences(), HERE / "python.cyclonedx.json": python_packages()}
    for path, text in made.items():
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path.name}: not that of the lock files. Run `python core/third_party.py`, and commit it.")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
