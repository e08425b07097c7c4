"""Keeps the seconds and the memory that each stage took when a build last ran it here, for the next plan."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from tokenmill.config.params import Params
from tokenmill.layout import RATES_FILE
from tokenmill.storage.atomic import write_atomic
from tokenmill.summary import StageSummary

_AKIN = 2  # a record serves for work of half to twice as many bytes


class StageRate(msgspec.Struct, frozen=True):
    """What a stage took. `params`: a digest of the parameters. `n_bytes`: those of the documents' files that it read, without
    finished units; for train-vocab, of the counted text. `peak_bytes`: the largest resident set; None if it was not measured."""

    params: str
    n_bytes: float
    seconds: float
    peak_bytes: float | None

    def serves(self, n_bytes: float) -> bool:
        """Whether it tells what so many bytes will take."""
        return self.n_bytes <= _AKIN * n_bytes and n_bytes <= _AKIN * self.n_bytes


def keep_rates(root: Path, params: Params, summaries: Iterable[StageSummary]) -> None:
    """Writes what the stages of a build took. Stages that did not run keep their last record."""
    kept, digest = _read(root), _digest(params)
    for summary in summaries:
        n_mb = summary.text_mb if summary.done_mb is None else summary.done_mb
        if summary.action != "run" or not n_mb or summary.seconds is None:
            continue
        new = StageRate(digest, n_mb * 1e6, summary.seconds, summary.peak_mb and summary.peak_mb * 1e6)
        old = kept.get(summary.stage, new)
        is_learned_before = summary.done_mb is None and (old.params, old.n_bytes) == (digest, new.n_bytes)
        # A vocabulary that was learned from the same text comes from the unit store, which takes no time.
        kept[summary.stage] = old if is_learned_before else new
    with write_atomic(root / RATES_FILE) as path:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")


def read_rates(root: Path, params: Params) -> Mapping[str, StageRate]:
    """The records of stages that ran with these parameters, by stage."""
    return {stage: one for stage, one in _read(root).items() if one.params == _digest(params)}


def _read(root: Path) -> dict[str, StageRate]:
    try:
        return msgspec.json.decode((root / RATES_FILE).read_bytes(), type=dict[str, StageRate])
    except (OSError, msgspec.DecodeError):
        return {}


def _digest(params: Params) -> str:
    """A digest of all parameters but those of publishing and refreshing, which no stage of a build reads."""
    words = params.model_dump_json(exclude={"publish", "refresh"})
    return hashlib.sha256(words.encode()).hexdigest()
