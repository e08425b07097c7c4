"""The sections of report.html, each as HTML with a sentence on what to look for."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenmill.quantities import size
from tokenmill.report import plots
from tokenmill.report.collect import OWN
from tokenmill.report.html import escaped, look, number, percent, table
from tokenmill.summary import StageSummary

Report = Mapping[str, Any]

_GROUPS_MAX = 15  # groups per kind in the plot; the table has all
_KINDS = {"overall": "all documents", "source": "source", "script": "script", "lang": "language"}


def figures(report: Report) -> str:
    """The key figures at the top of the page."""
    measures = report["measures"]
    shown = {
        "documents": number(report["documents"]),
        "of text": size(report["text_bytes"]),
        "tokens": number(report["tokens"]),
        "bytes per token": number(measures["bytes_per_token"]["overall"]),
        "tokens per word": number(measures["tokens_per_word"]["overall"]),
        "bigram bits per byte": number(measures["bigram_bits_per_byte"]),
    }
    cells = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in shown.items())
    n_tokens = number(report["vocab_size"])
    digest = f'<p class="look">Tokenizer <code>{report["tokenizer_digest"][:16]}…</code> of {n_tokens} tokens</p>'
    asked = report.get("vocab_size_asked") or 0  # missing in reports of an earlier tokenmill
    early = (
        f'<p class="no">The vocabulary was not reached: it has {n_tokens} of {number(asked)} tokens, because no pair was left that '
        "occurs often enough. Add text, or lower <code>train_vocab.vocab_size</code>.</p>"
        if report["vocab_size"] < asked
        else ""
    )
    return f'{digest}{early}<div class="figures">{cells}</div>'


def gates(outcomes: Sequence[Report]) -> str:
    """The gates of params.yaml and their results."""
    if not outcomes:
        return ""
    rows = [
        (
            f"<code>{escaped(one['gate'])}</code>",
            "holds" if one["holds"] else '<span class="no">does not hold</span>',
            escaped(one["note"]),
            escaped(one["wanted"]),
            number(one["found"], 4),
        )
        for one in outcomes
    ]
    words = look(
        "A gate that does not hold fails the build. The limits stand in <code>validate.gates</code> of params.yaml."
    )
    return f"<h2>Gates</h2>{words}" + table(("gate", "", "", "wanted", "found"), rows, left=3)


def groups(report: Report) -> str:
    """The tokenizer compared with the references, by group of documents."""
    rows, sample = report["groups"], report["sample"]
    labels = [OWN, *report["references"]]
    names = {(row["kind"], row["name"]) for row in rows}
    kinds = [kind for kind in _KINDS if kind == "overall" or sum(1 for one, _ in names if one == kind) > 1]
    found = {(row["kind"], row["name"], row["tokenizer"]): row for row in rows}
    largest = sorted((row for row in rows if row["tokenizer"] == OWN), key=lambda row: -row["n_bytes"])
    listed = [(row["kind"], row["name"]) for kind in kinds for row in largest if row["kind"] == kind]
    plotted = [one for kind in kinds for one in [one for one in listed if one[0] == kind][:_GROUPS_MAX]]
    points = [
        {"group": _group(*one), "tokenizer": label, "bytes_per_token": found[*one, label]["bytes_per_token"]}
        for one in plotted
        for label in labels
        if found[*one, label]["bytes_per_token"] is not None
    ]
    several = len(labels) > 1
    cells = []
    for one in listed:
        for label in labels:
            row = found[*one, label]
            cells.append(
                (
                    escaped(_KINDS[one[0]] if label == OWN else ""),
                    escaped("" if label != OWN or one[0] == "overall" else one[1]),
                    *([escaped(label)] if several else []),
                    number(row["n_documents"]) if label == OWN else "",
                    number(row["bytes_per_token"]),
                    number(row["tokens_per_word"]),
                    percent(row["words_whole_share"]),
                )
            )
    columns = (
        "group",
        "",
        *(["tokenizer"] if several else []),
        "documents",
        "bytes per token",
        "tokens per word",
        "words kept whole",
    )
    words = look(
        "More bytes per token is better compression. Look for a group far to the left of the others: the tokenizer saw little "
        "text like it, and models pay for it in longer sequences. A word is a run of letters; about 1.3 tokens per word is usual "
        "for English, and above 3 the words of a language are cut to pieces."
    )
    taken = (
        f"<p>Of a sample of {number(sample['documents'])} documents ({size(sample['text_bytes'])} of text from "
        f"{number(sample['files'])} files), without the tokens that begin and end documents. "
        "Scripts without blanks between words have no words here.</p>"
    )
    plot = plots.groups(points, labels) if points else ""
    return "<h2>Compression by group</h2>" + words + plot + table(columns, cells, 3 if several else 2) + taken


def quality(report: Report) -> str:
    """Measures that screen tokenizers."""
    measures, sample = report["measures"], report["sample"]
    renyi, gini = measures["renyi_efficiency"], measures["gini"]
    rows = [
        (
            "bigram bits per byte",
            number(measures["bigram_bits_per_byte"], 4),
            "Lower is better. What a bigram model needs for held-out text; of the measures that need no training, the one that "
            f"follows a model's loss best. {number(sample['tokens_train'])} tokens train it, "
            f"{number(sample['tokens_held_out'])} are held out.",
        ),
        (
            "Rényi efficiency, α = 2",
            number(renyi["2"], 4),
            "Higher: the tokens are used more evenly. 1 if all are equally frequent.",
        ),
        (
            "Rényi efficiency, α = 2.5",
            number(renyi["2_5"], 4),
            "The same, with more weight on the most frequent tokens.",
        ),
        (
            "Gini over languages",
            number(gini["languages"], 4),
            "0: every language needs equally many tokens per byte. Near 1: one pays for all.",
        ),
        ("Gini over scripts", number(gini["scripts"], 4), "Between scripts. 0 is best, near 1 is worst."),
        ("Gini over sources", number(gini["sources"], 4), "Between sources. 0 is best, near 1 is worst."),
    ]
    words = look(
        "Compare two builds on the same documents with these numbers. They screen tokenizers and do not rank them: there are "
        "tokenizers with a better number and a worse model."
    )
    measured = [row for row in rows if row[1] != number(None)]
    return "<h2>Measures</h2>" + words + table(("measure", "value", "what to look for"), measured, left=3)


def documents(report: Report) -> str:
    """Lengths of documents, special tokens' texts, and what was left out."""
    parts = ["<h2>Documents</h2>"]
    lengths = report["lengths"]
    if lengths and lengths["histogram"]:
        parts.append(
            look(
                "Many very short documents are often leftovers of extraction; very long ones are cut by a model's context."
            )
        )
        parts.append(plots.lengths(lengths["histogram"]))
        percentiles = lengths["percentiles"]
        names = {"min": "shortest", "p10": "10 %", "p50": "median", "p90": "90 %", "p99": "99 %", "max": "longest"}
        columns = ("tokens of a document", *names.values(), "mean")
        parts.append(table(columns, [("", *(number(percentiles[name]) for name in names), number(lengths["mean"], 1))]))
    parts.append("<h3>Texts of special tokens</h3>")
    special = [
        (escaped(source), f"<code>{escaped(name)}</code>", number(n))
        for source, of in report["special_texts"].items()
        for name, n in of.items()
    ]
    parts.append(
        look(
            "Documents should not hold them. Where they do, <code>encode.special_tokens_in_text</code> decides what becomes of "
            "them."
        )
    )
    parts.append(
        table(("source", "text", "in the sample"), special, left=2)
        if special
        else "<p>None in the sample of documents.</p>"
    )
    parts.append("<h3>Left out</h3>")
    measures = report["measures"]
    parts.append(
        f"<p>{number(measures['documents_bad'])} documents and {number(report['shards_damaged'])} damaged files are in the "
        f"quarantine; {number(measures['documents_dropped'])} documents were dropped as asked.</p>"
    )
    if report["quarantine"]:
        rows = [(escaped(one["reason"]), number(one["documents"])) for one in report["quarantine"]]
        parts.append(table(("reason", "documents"), rows))
    return "".join(parts)


def build(report: Report, summaries: Sequence[StageSummary], planned: Sequence[tuple[str, ...]]) -> str:
    """What was checked, the time of each stage of the last build, and a comparison with its plan."""
    checks = report["checks"]
    parts = ["<h2>Build</h2>"]
    if summaries:
        rows = [
            (
                one.stage,
                one.action,
                "–" if one.seconds is None else f"{one.seconds:,.1f} s",
                "–" if not one.done_mb or not one.seconds else f"{one.done_mb / one.seconds:,.1f} MB/s",
                "–"
                if not one.n_tokens or not one.seconds or not one.done_mb or one.done_mb < (one.file_mb or 0)
                else f"{one.n_tokens / one.seconds:,.0f}",
                "–" if one.peak_mb is None else f"{one.peak_mb:,.0f} MB",
            )
            for one in summaries
        ]
        parts.append(look("The last build. Stages that were up to date or restored took no time worth telling."))
        parts.append(table(("stage", "", "time", "read", "tokens per second", "peak memory"), rows, left=2))
    if planned:
        parts.append("<h3>Plan and outcome</h3>")
        parts.append(
            look("What tokenmill plan said before this build. A quantity outside its range was planned wrongly.")
        )
        parts.append(table(("", "from", "about", "to", "found", ""), [tuple(map(escaped, row)) for row in planned]))
    names = {key: key.replace("_", " ") for key in checks}
    names["sample_per_64_mb"] = "documents that other engines encode, for each 64 MB of text"
    rows_of_checks = [
        (names[key], number(value) if isinstance(value, int) else escaped(value))
        for key, value in checks.items()
        if value or not key.startswith("documents_equal")  # 0: this check did not run
    ]
    parts.append("<h3>What was checked</h3>")
    parts.append(table(("check", "of"), rows_of_checks))
    return "".join(parts)


def _group(kind: str, name: str) -> str:
    return _KINDS[kind] if kind == "overall" else f"{_KINDS[kind]}: {name}"
