"""Compares a build's measures with the gates of params.yaml."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenmill.config.gates import Gate, parse_gate
from tokenmill.errors import ParamsError, ValidationError, did_you_mean
from tokenmill.layout import PAGE_FILE


@dataclass(frozen=True)
class Published:
    """The report of the last published version. `version`: like dataset@v1.2.0, or None if none is published. `measures`: by full
    name, empty if unknown. `note`: why they are unknown. `dataset`: the paths of its manifest and its document index, or None."""

    version: str | None
    measures: Mapping[str, float]
    note: str = ""
    dataset: tuple[Path, Path] | None = None


@dataclass(frozen=True)
class GateResult:
    """The result of one gate. `wanted`: the limit as text. `found`: the measure; None if it was not measured. `note`: a remark."""

    gate: str
    wanted: str
    found: float | None
    holds: bool
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The outcome in the form of gates.json."""
        return asdict(self)


def flat(measures: Mapping[str, Any], prefix: str = "") -> dict[str, float | None]:
    """The measures by full name, with dots between the parts.

    >>> flat({"tokens": 3, "bytes_per_token": {"lang": {"de": 4.5}}})
    {'tokens': 3, 'bytes_per_token.lang.de': 4.5}
    """
    found: dict[str, float | None] = {}
    for key, value in measures.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def check_gates(
    gates: Sequence[str], measures: Mapping[str, float | None], published: Published | None
) -> list[GateResult]:
    """Checks each gate. `measures`: by full name. `published`: needed only if a gate compares with it.

    A gate whose published measure is missing holds, with a note why. A gate on a measure that this corpus lacks, such as bits per
    byte of a single document, fails. Raises ParamsError for an unknown measure.
    """
    return [_outcome(parse_gate(text), measures, published) for text in gates]


def _outcome(gate: Gate, measures: Mapping[str, float | None], published: Published | None) -> GateResult:
    if gate.measure not in measures:
        parts = [name for name in measures if name.startswith(gate.measure.split(".")[0])]
        hint = did_you_mean(gate.measure, measures)
        raise ParamsError(
            "validate.gates",
            f"found {gate.text!r}; this build has no measure {gate.measure!r}. It has: {', '.join(parts)}.",
            hint,
            code="TM102",
        )
    value = measures[gate.measure]
    limit = None
    if gate.is_relative:
        assert published is not None
        limit = published.measures.get(gate.measure)
        if limit is None:
            note = published.note or f"{published.version} has no such measure"
            return GateResult(
                gate.text, f"{gate.sign} {_number(gate.number)} × published", value, True, f"not compared: {note}"
            )
    note = (
        f"{_number(gate.number)} × {_number(limit or 0)} of {published.version}"
        if limit is not None and published
        else ""
    )
    wanted = f"{gate.sign} {_number(gate.limit(limit))}"
    if value is None:
        return GateResult(gate.text, wanted, None, False, "not measured in this build")
    return GateResult(gate.text, wanted, value, gate.holds(value, limit), note)


def refuse_broken(outcomes: Sequence[GateResult]) -> None:
    """Raises ValidationError with a table of wanted and found values if a gate does not hold."""
    broken = [outcome for outcome in outcomes if not outcome.holds]
    if not broken:
        return
    rows = [("gate", "wanted", "found", "")]
    rows += [(one.gate, one.wanted, "nothing" if one.found is None else _number(one.found), one.note) for one in broken]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    raise ValidationError(
        "validate.gates",
        [
            f"{len(broken)} of {len(outcomes)} gates do not hold:",
            *(f"  {line.rstrip()}" for line in lines),
        ],
        f"{PAGE_FILE} shows all measures. Change the corpus or the parameters, or the gate in params.yaml.",
        code="TM503",
    )


def _number(value: float) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
