"""Small projects that use every feature between them. Each is made by a function, from the same bytes every time."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers

from tests.builders import character_tokenizers
from tests.builders.corpora import weigh
from tests.builders.small_tokenizer import small_tokenizer
from tests.builders.talks import SPECIAL, hold_talks, write_talks
from tests.conftest import Project
from tokenmill import Tokenizer

WORDS = ("the", "cat", "sat", "on", "a", "mat", "dog", "log", "naïve", "café", "東京", "🙂", "lower", "lowest")
TURNS: dict[str, Any] = {"template": "chatml", "stop_token": "unchecked"}


def texts(name: str, n: int) -> list[str]:
    """Texts of some words, each different."""
    first = sum(name.encode())
    return [" ".join(WORDS[(first + i * k) % len(WORDS)] for k in range(1, 4 + i % 9)) + f" {i}" for i in range(n)]


def documents(project: Project, *names: str) -> None:
    """Removes the documents of the project, and writes a file of texts for each name."""
    for path in (project.root / "data/raw").iterdir():
        path.unlink()
    for name in names:
        project.write(name, texts(name, 30))


def rows(project: Project, name: str, documents: list[dict[str, Any]]) -> None:
    """A file of these rows: JSON lines, Parquet or csv."""
    path = project.root / "data/raw" / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(documents), path)
    elif name.endswith(".csv"):
        lines = [",".join(documents[0]), *(",".join(str(value) for value in row.values()) for row in documents)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in documents), encoding="utf-8")


def every_format(project: Project) -> None:
    documents(project, "a.jsonl", "b.jsonl")
    names = ["parquet", "arrow", "megatron", "datatrove", "olmo", "mds", "nanogpt", "llmc", "litdata"]
    project.set(encode__formats=names, encode__min_parts=2, train_vocab__forbid=["[0-9]"])


def packed_and_split(project: Project) -> None:
    documents(project, "a.jsonl", "b.jsonl", "c.jsonl")
    project.set(
        encode__formats=["parquet", "megatron", "olmo", "litdata"],
        encode__pack={"length": 32, "mode": "best_fit", "long": "cut", "output": "index"},
        encode__splits={"train": 0.8, "validation": 0.2},
        encode__shuffle={"seed": 1, "epochs": 2},
    )


def mixed(project: Project) -> None:
    documents(project)
    for name in ("web", "code", "books"):
        project.write(f"{name}/a.jsonl", texts(name, 40))
    weigh(project, web={"epochs": 2.5}, code={"tokens": 300}, books={})
    project.set(encode__formats=["arrow", "megatron"], encode__shuffle={"seed": 3, "epochs": 1})


def conversations(project: Project) -> None:
    hold_talks(project)
    pack = {"length": 64, "mode": "best_fit", "long": "cut", "pad": "<|pad|>"}
    project.set(
        encode__pack=pack,
        encode__formats=["arrow", "datatrove", "mds", "megatron_sft"],
        encode__chat={**TURNS, "cut_max": 1},
    )


def answers_alone(project: Project) -> None:
    hold_talks(project)
    project.set(encode__chat={**TURNS, "turns": "each"}, encode__formats=["parquet", "mds"])


def template_of_its_own(project: Project) -> None:
    hold_talks(project)
    template = (
        "{% for message in messages %}{% if message.role == 'assistant' %}{% generation %}{{ message.content }}"
        "{% if loop.last %}<|pad|>{% endif %}{% endgeneration %}{% else %}<|im_start|>{{ message.content }}<|im_end|>"
        "{% endif %}{% endfor %}"
    )
    (project.root / "own.jinja").write_text(template, encoding="utf-8")
    project.depend("own.jinja", "train-vocab", "encode")
    chat = {"template": "own.jinja", "stop_token": "unchecked"}
    project.set(encode__chat=chat, encode__formats=["olmo_sft", "arrow"])


def pairs(project: Project) -> None:
    hold_talks(project)
    (project.root / "data/raw/b.jsonl").unlink()
    answers = [("the cat?", "it sat", "the dog"), ("log?", "no <|im_end|> 🙂", "no"), ("mat?", "on", "on the log")]
    names = ("prompt", "chosen", "rejected")
    rows(project, "a.jsonl", [{"id": f"p{i}", **dict(zip(names, pair, strict=True))} for i, pair in enumerate(answers)])
    project.set(
        source__messages_column=None,
        source__pair={name: name for name in names},
        encode__chat={"template": "chatml", "turns": "pair", "cut_max": 1},
        encode__pack={"length": 60, "mode": "none", "long": "cut"},
        encode__formats=["trl_dpo", "arrow"],
    )


def prompts(project: Project) -> None:
    hold_talks(project)
    write_talks(project, "a.jsonl", [[("user", text)] for text in texts("a", 12)])
    write_talks(project, "b.jsonl", [[("system", "be brief"), ("user", text)] for text in texts("b", 9)])
    pack = {"length": 60, "mode": "none", "long": "drop"}
    project.set(encode__chat={"template": "chatml", "mask": "none"}, encode__pack=pack, encode__formats=["arrow"])


def left_out_and_kept(project: Project) -> None:
    documents(project)
    crawled = [
        {"id": f"r{i}", "text": text, "lang": ("en", "de")[i % 2], "site": f"site {i % 5}"}
        for i, text in enumerate(texts("r", 30))
    ]
    for name, start in (("a.jsonl", 0), ("b.parquet", 10), ("c.csv", 20)):
        rows(project, name, crawled[start : start + 10])
    with (project.root / "data/raw/a.jsonl").open("a", encoding="utf-8") as file:
        file.write("no json\n")
    (project.root / "drop.csv").write_text("id,reason\nr3,asked\nr14,spam\n", encoding="utf-8")
    project.set_drop("drop.csv")
    project.set(
        source__on_bad_document="quarantine",
        source__bad_documents_max=1,
        source__keep_columns=["site"],
        validate__language_column="lang",
        encode__split_group="site",
        encode__splits={"train": 0.7, "test": 0.3},
        count__partitions=3,
        count__weights={"data/raw/a.jsonl": 2},
    )


def short_ones_left_out(project: Project) -> None:
    documents(project, "a.jsonl")
    project.write("b.jsonl", ["", "🙂🙂", "e\u0301e\u0301", "long enough"])
    project.set(source__min_chars=4)


def imported_of_bytes(project: Project) -> None:
    documents(project, "a.jsonl")
    small_tokenizer(project.root / "words")
    project.set(tokenizer={"from": "words"}, encode__end_of_document="<|endoftext|>")


def imported_of_characters(project: Project) -> None:
    documents(project, "a.jsonl")
    library = tokenizers.Tokenizer.from_str(json.dumps(character_tokenizers.document()))
    save(project, library)


def imported_of_the_library(project: Project) -> None:
    documents(project, "a.jsonl")
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"the": 0, "cat": 1, "?": 2}, unk_token="?"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    save(project, library)


def save(project: Project, library: tokenizers.Tokenizer) -> None:
    """Imports a tokenizer of the library."""
    library.add_special_tokens(["<|endoftext|>", *SPECIAL])
    (project.root / "words").mkdir()
    library.save(str(project.root / "words/tokenizer.json"))
    project.set(tokenizer={"from": "words"})


def extended(project: Project) -> None:
    documents(project, "a.jsonl", "b.jsonl")
    base = project.root / "base"
    small_tokenizer(base)
    project.set(
        train_vocab__extend={"path": "base", "digest": Tokenizer.load(base).digest, "old_glob": "data/raw/b.jsonl"},
        train_vocab__vocab_size=Tokenizer.load(base).vocab_size + 20,
    )


def trimmed(project: Project) -> None:
    documents(project, "a.jsonl")
    base = project.root / "base"
    small_tokenizer(base)
    trim = {"from": "base", "digest": Tokenizer.load(base).digest, "min_count": 2, "counts": None}
    project.set(train_vocab__trim=trim)


def learned_for_groups(project: Project) -> None:
    documents(project)
    for name in ("one", "two"):
        project.write(f"{name}/a.jsonl", texts(name, 30))
    project.set(
        count__by="sources",
        train_vocab__parity={"variant": "base"},
        train_vocab__vocab_sizes=[262],
        train_vocab__vocab_size=290,
        train_vocab__pad_vocab_to=8,
    )


def learned_over_words(project: Project) -> None:
    documents(project, "a.jsonl")
    superwords = {"transition": 0.5, "words_max": 3}
    project.set(count__superwords="superbpe", train_vocab__superwords=superwords, train_vocab__vocab_size=300)


PROJECTS: dict[str, Callable[[Project], None]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        every_format,
        packed_and_split,
        mixed,
        conversations,
        answers_alone,
        template_of_its_own,
        pairs,
        prompts,
        left_out_and_kept,
        short_ones_left_out,
        imported_of_bytes,
        imported_of_characters,
        imported_of_the_library,
        extended,
        trimmed,
        learned_for_groups,
        learned_over_words,
    )
}
