"""The page of params.yaml, from the models of its sections."""

import re

from docs.generated.tables import code, table
from tokenmill.project.parameters import Key, keys, sections


def page() -> str:
    """A table of the keys for each section of the file."""
    parts = []
    for name, meaning in sections().items():
        inside = _inside(name)
        rows = [
            [
                code(place.removeprefix(f"{name}.")),
                _sentence(key.meaning),
                key.type,
                code(key.default or "") or "–",
                code(key.example),
            ]
            for place, key in inside.items()
        ]
        parts += [f"## {name}\n", f"{_sentence(meaning)} {_runs_again(name)}\n"]
        parts.append(table(["key", "meaning", "type", "default", "example"], rows))
    return "\n".join(parts)


def sections_again() -> str:
    """A table of the sections: their keys, and the stages that run again after a change of these."""
    found = [(name, stages, keys) for name in sections() for stages, keys in _keys_by_stages(name)]
    rows = [[code(name), ", ".join(map(code, keys)), stages] for name, stages, keys in found]
    return table(["section", "keys", "stages that run again"], rows)


def _inside(section: str) -> dict[str, Key]:
    return {name: key for name, key in keys().items() if f"{name}.".startswith(f"{section}.")}


def _runs_again(section: str) -> str:
    """Which stages run again after a change in a section: those of most of its keys first, then those of the others."""
    most, *others = _keys_by_stages(section)
    said = [f"A change runs again: {most[0]}", *(f"of {', '.join(map(code, keys))}: {one}" for one, keys in others)]
    return "; ".join(said) + "."


def _keys_by_stages(section: str) -> list[tuple[str, list[str]]]:
    """The keys of a section, without those inside them, by the stages that a change of them runs again, most keys first."""
    by_stages: dict[str, list[str]] = {}
    for name, key in _inside(section).items():
        own = name.removeprefix(f"{section}.").removeprefix("NAME.")
        if "." not in own and name != section:
            by_stages.setdefault(", ".join(key.stages) or "no stage", []).append(own)
    return sorted(by_stages.items(), key=lambda one: -len(one[1]))


def _sentence(words: str) -> str:
    """A remark as a sentence; a value that it begins with stays as it is."""
    begins_with_value = re.match(r"[\w.]+:", words)
    words = words if begins_with_value else words[:1].upper() + words[1:]
    words = re.sub(r"(\{(?:[^{}]|\{[^{}]*\})*\}|(?:data/|s3://)\S*[*]\S*)", lambda found: code(found[1]), words)
    return words + ("" if not words or words.endswith(".") else ".")
