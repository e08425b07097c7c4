"""Takes all measures of a checked dataset and its tokenizer for report.json."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tokenmill import _core
from tokenmill.artifacts.model_card import not_reached, read_card
from tokenmill.checks.file_checks import FileCheck
from tokenmill.config.params import Validate
from tokenmill.corpus.dropped import DROPPED_FILE, none_dropped, read_dropped
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.quarantine import QUARANTINE_FILE
from tokenmill.corpus.units import Unit
from tokenmill.counts.table import read_counts
from tokenmill.dataset.manifest import Manifest
from tokenmill.layout import COUNTS_FILE, QUARANTINE_DIRECTORY, TABLES_DIRECTORY, TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.report import sample as sampling
from tokenmill.report.bigram import Bigram, bigram
from tokenmill.report.conversations import conversations_of
from tokenmill.report.groups import Measured, MeasuredGroups, measure, scripts_of, words_of
from tokenmill.report.health import health_of
from tokenmill.report.measures import by_vocab_size, coverage, gini, lengths, ranks, renyi_efficiency
from tokenmill.report.panel import panel_of
from tokenmill.report.references import load_references
from tokenmill.report.sample import DocumentSample
from tokenmill.report.totals import Tables, read_tables, sums_by_source
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.checked_parquet import read_table
from tokenmill_reader.description import info

OWN = "this build"
"""The label of the build's own tokenizer among the references."""

_ALPHAS = (("2", 2.0), ("2_5", 2.5))
_DIGITS = 6
_N_REASONS = 20
_SUMS = (
    "documents",
    "tokens",
    "text_bytes",
    "documents_bad",
    "documents_dropped",
    "shards_damaged",
    "bytes_per_token",
    "shards",
    "files",
    "id_type",
)
"""What the report takes as it is from `tokenmill info`."""


@dataclass(frozen=True)
class Reported:
    """A validated dataset in the project at `root`, with its tokenizer and its documents. `files`: what was checked of each file.
    `facts`: what was checked in all, for the report."""

    root: Path
    manifest: Manifest
    tokenizer: Tokenizer
    units: Sequence[Unit]
    limits: Limits
    files: Sequence[FileCheck]
    facts: Mapping[str, Any]


def collect(checked: Reported, params: Validate) -> dict[str, Any]:
    """The report as JSON values, with floats rounded to six digits. The same dataset and parameters give the same report.

    Sums and compression, in all and by source, come from the whole dataset, like token counts and document lengths (data/tables);
    words, scripts, languages and the comparison with references from a sample of documents; the bigram model from a sample of
    tokens. What cannot be measured is None. Raises ParamsError for a missing reference or language column.
    """
    root, manifest, tokenizer = checked.root, checked.manifest, checked.tokenizer
    described = info(root / TOKENS_DIRECTORY)
    dataset = _of_dataset(manifest, described)
    tables = read_tables(root / TABLES_DIRECTORY)
    references = load_references(params.references, root)
    dropped = read_dropped(root / TABLES_DIRECTORY / DROPPED_FILE) if manifest.n_dropped else none_dropped()
    sample = sampling.draw_documents(checked.units, params.language_column, checked.limits, dropped)
    counts = None if tables is None else _of_text(tables, tokenizer)
    # The bigram model is half of the work, and most of that is done without Python's lock.
    with ThreadPoolExecutor(1, thread_name_prefix="bigram") as pool:
        modelling = pool.submit(_bigram, checked)
        compared = _compare({OWN: tokenizer} | references, sample)
        vocabulary = health_of(tokenizer, counts)
        special_texts = _special_texts(sample, tokenizer)
        curve = _curve(tokenizer, tables, manifest.text_bytes)
        model = modelling.result()
    # Not beside the model: a long conversation takes as much memory again.
    conversations = conversations_of(manifest, described["chat"], root / TABLES_DIRECTORY, checked.files)
    measures = {
        **{key: described[key] for key in ("documents", "documents_bad", "documents_dropped", "tokens", "text_bytes")},
        "vocab_size": tokenizer.vocab_size,
        **_compression(dataset, compared[OWN]),
        "bigram_bits_per_byte": model.bits_per_byte,
        **_of_counts(counts),
        **_of_vocabulary(vocabulary),
        "special_texts": sum(n for of in special_texts.values() for n in of.values()),
        **({} if conversations is None else {"trained_share": conversations["trained_share"]}),
    }
    report: dict[str, Any] = _rounded(
        {
            **_summary(checked, described),
            "measures": measures,
            "sample": _facts_of_sample(sample) | {"tokens_train": model.n_train, "tokens_held_out": model.n_held_out},
            "groups": [
                *_rows_of_groups("dataset", {OWN: dataset}),
                *_rows_of_groups("sample", compared),
            ],
            "references": {
                label: {"digest": reference.digest, "vocab_size": reference.vocab_size}
                for label, reference in references.items()
            },
            "by_vocab_size": curve,
            "ranks": None if counts is None else ranks(_array(counts)),
            "coverage": None if counts is None else coverage(_array(counts)),
            "vocabulary": vocabulary,
            "lengths": None if tables is None else lengths(tables.lengths, tables.n_documents),
            "special_texts": special_texts,
            **{key: described[key] for key in ("sets", "read_by", "mixture", "packing")},
            "conversations": conversations,
            "quarantine": _quarantined(root / QUARANTINE_DIRECTORY / QUARANTINE_FILE),
            "panel": panel_of(tokenizer, references),
        }
    )
    return report


def _bigram(checked: Reported) -> Bigram:
    """The bigram model of a sample of the dataset's tokens."""
    tokens = sampling.draw_tokens(checked.root / TOKENS_DIRECTORY, [shard.name for shard in checked.manifest.shards])
    return bigram(tokens.ids, tokens.lengths, tokens.n_bytes, tokens.keys)


def _facts_of_sample(sample: DocumentSample) -> dict[str, int]:
    """How many documents were drawn, and how."""
    return {
        "seed": sampling.SEED,
        "documents": len(sample.texts),
        "text_bytes": sample.n_bytes,
        "files": sample.n_files,
    }


def _rows_of_groups(of: str, compared: Mapping[str, MeasuredGroups]) -> list[dict[str, Any]]:
    """A row for each tokenizer and group of documents, with its measures. `of`: what was measured, "dataset" or "sample"."""
    return [
        {"kind": kind, "name": name, "of": of, "tokenizer": label, **asdict(one)}
        for label, kinds in compared.items()
        for kind, groups in kinds.items()
        for name, one in groups.items()
    ]


def _summary(checked: Reported, described: Mapping[str, Any]) -> dict[str, Any]:
    """What was checked, and the dataset's sums as in `described`. `vocab_size_asked`, `learned_with` and `not_reached` are None
    for an imported tokenizer."""
    training = read_card(checked.root / TOKENIZER_DIRECTORY).training
    tokenizer = checked.tokenizer
    pretokens = read_counts(checked.root / COUNTS_FILE)
    n_pretokens = pc.sum(pretokens["count"]).as_py()
    counted = {"pretokens": n_pretokens, "pretokens_distinct": pretokens.num_rows} if len(pretokens) else {}
    return {
        **{key: described[key] for key in _SUMS},
        **counted,
        "vocab_size": tokenizer.vocab_size,
        "vocab_size_asked": None if training is None else training.vocab_size_asked,
        "learned_with": None if training is None else training.learned_with.model_dump(),
        "not_reached": None
        if training is None
        else not_reached(tokenizer.vocab_size, tokenizer.special_tokens, training),
        "tokenizer_digest": tokenizer.digest,
        "checks": dict(checked.facts),
    }


def _compare(tokenizers: Mapping[str, Tokenizer], sample: DocumentSample) -> dict[str, dict[str, dict[str, Measured]]]:
    scripts = scripts_of(sample.texts)
    words = words_of(sample.texts, scripts)
    groups = {
        "overall": pc.if_else(pc.is_valid(sample.texts), "overall", None),
        "source": sample.sources,
        "script": scripts,
        "lang": sample.languages,
    }
    return {label: measure(one, sample.texts, words, groups) for label, one in tokenizers.items()}


def _of_dataset(manifest: Manifest, described: Mapping[str, Any]) -> MeasuredGroups:
    """The compression of all documents and of each source, tokens around documents included; words are not known."""
    overall = Measured(described["documents"], described["text_bytes"], described["bytes_per_token"], None, None)
    sources = {
        name: Measured(of.n_documents, of.text_bytes, of.text_bytes / of.n_tokens if of.n_tokens else None, None, None)
        for name, of in sums_by_source(manifest).items()
    }
    return {"overall": {"overall": overall}, "source": sources}


def _compression(dataset: MeasuredGroups, sampled: MeasuredGroups) -> dict[str, Any]:
    """Compression measures by group. Bytes per token are those of the whole dataset where it has the group."""
    measures: dict[str, dict[str, Any]] = {}
    compressed = {**sampled, **dataset}
    for key, groups in (("bytes_per_token", compressed), ("tokens_per_word", sampled), ("words_whole_share", sampled)):
        values = {kind: {name: getattr(group, key) for name, group in of.items()} for kind, of in groups.items()}
        overall = values.pop("overall").get("overall")
        measures[key] = {"overall": overall, **values}
    per_byte = {
        kind: [1 / group.bytes_per_token for group in of.values() if group.bytes_per_token]
        for kind, of in compressed.items()
    }
    kinds = {"languages": "lang", "scripts": "script", "sources": "source"}
    return {**measures, "gini": {name: gini(per_byte[kind]) for name, kind in kinds.items()}}


def _of_text(tables: Tables, tokenizer: Tokenizer) -> dict[int, int]:
    """The counts of all tokens without special ones, which stand between documents."""
    special = set(tokenizer.special_tokens.values())
    return {id: n for id, n in tables.counts.items() if id not in special}


def _array(counts: Mapping[int, int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.fromiter(counts.values(), np.int64, len(counts))


def _of_counts(counts: Mapping[int, int] | None) -> dict[str, Any]:
    return {
        "renyi_efficiency": {
            name: None if counts is None else renyi_efficiency(_array(counts), alpha) for name, alpha in _ALPHAS
        }
    }


def _of_vocabulary(vocabulary: Mapping[str, Any]) -> dict[str, Any]:
    n_learned = vocabulary["learned_tokens"]
    n = {key: None if vocabulary[key] is None else vocabulary[key]["n_tokens"] for key in ("unused", "rare")}
    shares = {key: None if value is None or not n_learned else value / n_learned for key, value in n.items()}
    return {
        "unused_tokens": n["unused"],
        "unused_tokens_share": shares["unused"],
        "rare_tokens_share": shares["rare"],
        "unreached_tokens": vocabulary["unreached"]["n_tokens"],
    }


def _curve(tokenizer: Tokenizer, tables: Tables | None, text_bytes: int) -> list[dict[str, float]] | None:
    if tables is None or tokenizer.model is None:
        return None
    return by_vocab_size(tokenizer.model, tables.counts, text_bytes)


def _special_texts(sample: DocumentSample, tokenizer: Tokenizer) -> dict[str, dict[str, int]]:
    """How often each special token's text occurs in the sampled documents, by source, without zeros."""
    found: dict[str, dict[str, int]] = {}
    tokens = [*tokenizer.special_tokens]
    for token in (tokens[i] for i in _core.TextFinder(tokens).occurring(sample.texts.drop_null().to_pylist())):
        n = pc.count_substring(sample.texts, token)
        for source, count in zip(
            sample.sources.filter(pc.greater(n, 0)).to_pylist(), n.filter(pc.greater(n, 0)).to_pylist(), strict=True
        ):
            of = found.setdefault(source, {})
            of[token] = of.get(token, 0) + count
    return dict(sorted(found.items()))


def _quarantined(path: Path) -> list[dict[str, Any]]:
    """The quarantine's reasons, the most frequent first, each with its number of documents or damaged files and the shard and row
    of the first one. The row of a damaged file is None."""
    if not path.exists():
        return []
    rows = read_table(path, columns=["shard", "row", "reason"])
    first = [("shard", "first"), ("row", "first", pc.ScalarAggregateOptions(skip_nulls=False)), ("reason", "count")]
    found = rows.group_by("reason", use_threads=False).aggregate(first).to_pylist()
    return [
        {
            "reason": one["reason"],
            "documents": one["reason_count"],
            "shard": one["shard_first"],
            "row": one["row_first"],
        }
        for one in sorted(found, key=lambda one: (-one["reason_count"], one["reason"]))[:_N_REASONS]
    ]


def _rounded(value: Any) -> Any:
    """The JSON value with rounded floats, so that rounding errors do not change the report's bytes."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value
