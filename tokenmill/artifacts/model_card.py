"""A tokenizer's model card for people and programs: its training data and settings, its efficiency, and how to load it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

import tokenmill
from tokenmill.artifacts.golden import Golden
from tokenmill.artifacts.learned_with import REGEX_KEYS, LearnedWith
from tokenmill.artifacts.markdown import code, facts
from tokenmill.config.record import Record
from tokenmill.config.training_params import TrainVocab
from tokenmill.corpus.provenance import CountedShard
from tokenmill.corpus.scripts import characters_by_script
from tokenmill.errors import TokenizerError, first_finding
from tokenmill.special_tokens import RESERVED
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.followed import followed
from tokenmill.tokenizer.forms import Form, warnings_of
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.regular_files import read

CARD_FILE = "card.json"
README_FILE = "README.md"

_SLICE_ROWS = 1 << 18
_N_SHARDS_SHOWN = 20


class TrainedOn(Record):
    """A shard of the corpus that the tokenizer was trained on."""

    name: str
    n_bytes: int
    sha256: str


class Training(Record):
    """The training data of a tokenizer. `text_bytes`: bytes of UTF-8. `scripts`: each script's share of the characters."""

    pair_count_min: int
    token_bytes_max: int | None
    vocab_size_asked: int
    text_bytes: int
    n_pretokens: int
    n_pretokens_distinct: int
    n_tokens: int
    bytes_per_token: float
    scripts: dict[str, float]
    shards: list[TrainedOn]
    learned_with: LearnedWith = LearnedWith()


class Card(Record):
    """The card.json of a tokenizer. `training`: null for a tokenizer that was made elsewhere; `origin` then names its source.
    `llama_cpp`: why llama.cpp would give other ids; null if it gives the same, and in cards of before 0.3."""

    format_version: int = 1
    made_by: str
    license: str | None
    digest: str
    vocab_size: int
    n_merges: int | None
    pattern: list[str] | None
    pattern_name: str | None
    special_tokens: dict[str, int]
    engines: dict[str, str | None]
    origin: str | None
    training: Training | None
    llama_cpp: str | None = None


def measure_training(
    counts: pa.Table,
    tokenizer: Tokenizer,
    params: TrainVocab,
    shards: Sequence[CountedShard],
    learned_with: LearnedWith,
) -> Training:
    """The training data, and the tokenizer's efficiency on it. `bytes_per_token` is exact, from the counts of all pre-tokens."""
    assert tokenizer.model is not None
    whole = Tokenizer(replace(tokenizer.model, steps=()))  # outside its text, a pre-token might be split further
    text_bytes = n_tokens = n_pretokens = 0
    scripts: dict[str, int] = {}
    for start in range(0, counts.num_rows, _SLICE_ROWS):
        part = counts.slice(start, _SLICE_ROWS)
        times = _one_chunk(part["count"])
        pretokens = _one_chunk(part["pretoken"])
        n_pretokens += pc.sum(times).as_py()
        text_bytes += pc.sum(pc.multiply_checked(pc.binary_length(pretokens).cast(pa.uint64()), times)).as_py()
        lengths = pc.list_value_length(whole.encode_batch(pretokens)).cast(pa.uint64())
        n_tokens += pc.sum(pc.multiply_checked(lengths, times)).as_py()
        for script, n in characters_by_script(pretokens.cast(pa.large_string()), times).items():
            scripts[script] = scripts.get(script, 0) + n
    n_characters = max(sum(scripts.values()), 1)
    return Training(
        pair_count_min=params.pair_count_min,
        token_bytes_max=params.token_bytes_max,
        vocab_size_asked=params.vocab_size if params.trim is None else tokenizer.vocab_size,
        text_bytes=text_bytes,
        n_pretokens=n_pretokens,
        n_pretokens_distinct=counts.num_rows,
        n_tokens=n_tokens,
        bytes_per_token=round(text_bytes / max(n_tokens, 1), 4),
        scripts={script: round(n / n_characters, 6) for script, n in sorted(scripts.items())},
        shards=[TrainedOn(name=shard.name, n_bytes=shard.n_bytes, sha256=shard.sha256) for shard in shards],
        learned_with=learned_with,
    )


def with_text(training: Training, text_bytes: int, n_tokens: int) -> Training:
    """The training data with these sums, for tokens of several pre-tokens, which the counts of pre-tokens do not tell."""
    bytes_per_token = round(text_bytes / max(n_tokens, 1), 4)
    return training.model_copy(
        update={"text_bytes": text_bytes, "n_tokens": n_tokens, "bytes_per_token": bytes_per_token}
    )


def not_reached(vocab_size: int, special_tokens: Mapping[str, int], training: Training) -> str | None:
    """How many of the wanted tokens there are, and why learning stopped; None if all are there. The last tokens, which only
    fill up the vocabulary, do not count."""
    last = next((text for text, id in special_tokens.items() if id == vocab_size - 1), "")
    n_tokens = vocab_size - (int(found[1]) + 1 if (found := RESERVED.fullmatch(last)) else 0)
    if n_tokens >= training.vocab_size_asked:
        return None
    limits = [f"occurs {training.pair_count_min:,} times or more"]
    if training.token_bytes_max is not None:
        limits.append(f"makes a token of less than {training.token_bytes_max:,} bytes")
    of = training.learned_with
    if of.superwords is not None:
        limits.append(f"has at most {of.superwords.words_max} words")
    if keys := [name for name in REGEX_KEYS if getattr(of, name)]:
        names = " and ".join(f"train_vocab.{name}" for name in keys)
        limits.append(f"is allowed by {names}, which refused {of.n_refused:,} tokens")
    return f"{n_tokens:,} of {training.vocab_size_asked:,} tokens, because no pair is left that {' and '.join(limits)}."


def make_card(
    tokenizer: Tokenizer, golden: Golden, license: str | None, training: Training | None, origin: str | None = None
) -> Card:
    """The card of a tokenizer."""
    return Card(
        made_by=f"tokenmill {tokenmill.__version__}",
        license=license,
        digest=tokenizer.digest,
        vocab_size=tokenizer.vocab_size,
        n_merges=tokenizer.n_merges,
        pattern=None if tokenizer.steps is None else list(tokenizer.steps),
        pattern_name=tokenizer.pattern if tokenizer.steps and tokenizer.pattern not in tokenizer.steps else None,
        special_tokens=tokenizer.special_tokens,
        engines=golden.engines,
        origin=origin,
        training=training,
        llama_cpp=" ".join(warnings_of(Form(tokenizer, "", {}), "llama.cpp")) or None,
    )


def write_card(card: Card, directory: Path) -> None:
    """Writes card.json, and README.md with the same content for people. The same card gives the same bytes."""
    for name, content in ((CARD_FILE, card.model_dump_json(indent=1) + "\n"), (README_FILE, readme_of(card))):
        with write_atomic(directory / name) as path:
            path.write_text(content, encoding="utf-8")


def read_card(directory: Path) -> Card:
    """The card of a published tokenizer. Raises TokenizerError if it is missing or malformed."""
    path = directory / CARD_FILE
    try:
        return Card.model_validate_json(read(followed(directory, CARD_FILE)))
    except FileNotFoundError:
        raise TokenizerError(path, "missing; the tokenizer was not made or taken by `tokenmill build`.") from None
    except ValidationError as error:
        raise TokenizerError(path, f"{first_finding(error)}.", "Fetch or build the tokenizer again.") from None


def readme_of(card: Card) -> str:
    """README.md, with the metadata header that model hubs read."""
    missed = None if card.training is None else not_reached(card.vocab_size, card.special_tokens, card.training)
    head = ["---", *([f"license: {card.license}"] if card.license else []), "library_name: tokenizers", "tags:"]
    parts = [
        "\n".join([*head, "- tokenizer", "- tokenmill", "---"]),
        "# Tokenizer",
        f"License: {card.license or 'not stated'}. Made by {card.made_by}. sha256 over vocabulary, merges, pattern and special "
        f"tokens:\n`{card.digest}`",
        _numbers(card),
        *([] if missed is None else [f"**The vocabulary was not reached**: {missed}"]),
        *([] if card.origin is None else [f"Taken from {code(card.origin)}."]),
        *([] if card.training is None else [_trained_on(card.training)]),
        _how_to_load(card),
        "`golden.json` holds texts in many scripts with their ids, which every build with this tokenizer checks; `card.json` "
        "holds the numbers of this page.",
    ]
    return "\n\n".join(parts) + "\n"


def _numbers(card: Card) -> str:
    rows = [("tokens", f"{card.vocab_size:,}")]
    if card.n_merges is not None:
        rows.append(("merges", f"{card.n_merges:,}"))
    if card.pattern is not None:
        rows.append(("split", card.pattern_name or f"{len(card.pattern)} regexes, in card.json"))
    rows.append(
        ("special tokens", ", ".join(f"{code(text)} = {id}" for text, id in card.special_tokens.items()) or "none")
    )
    if training := card.training:
        rows += [
            ("bytes per token of its corpus", f"{training.bytes_per_token:.4f}"),
            (
                "text",
                f"{training.text_bytes:,} bytes, {training.n_pretokens:,} pre-tokens, {training.n_pretokens_distinct:,} distinct",
            ),
            ("scripts", ", ".join(f"{script} {share:.2%}" for script, share in _largest(training.scripts)) or "none"),
            (
                "vocab_size, pair_count_min, token_bytes_max",
                f"{training.vocab_size_asked}, {training.pair_count_min}, {training.token_bytes_max}",
            ),
            *(
                (name, f"`` {words} ``" if name in REGEX_KEYS else words)
                for name, words in training.learned_with.rows()
            ),
        ]
    return facts(rows)


def _trained_on(training: Training) -> str:
    shown = training.shards[:_N_SHARDS_SHOWN]
    lines = [f"- {code(shard.name)}, {shard.n_bytes:,} bytes, sha256 `{shard.sha256}`" for shard in shown]
    if len(training.shards) > len(shown):
        lines.append(f"- and {len(training.shards) - len(shown):,} more, in card.json")
    return f"## Trained on\n\n{len(training.shards):,} files:\n\n" + "\n".join(lines)


def _how_to_load(card: Card) -> str:
    examples = [
        'from tokenmill import Tokenizer\ntokenizer = Tokenizer.load("DIRECTORY")',
        'from tokenizers import Tokenizer\ntokenizer = Tokenizer.from_file("DIRECTORY/tokenizer.json")',
        'from transformers import AutoTokenizer\ntokenizer = AutoTokenizer.from_pretrained("DIRECTORY")',
    ]
    if card.engines.get("tiktoken", "") is None and card.pattern:
        examples.append(
            "import tiktoken\nfrom tiktoken.load import load_tiktoken_bpe\n"
            f'tokenizer = tiktoken.Encoding(\n    "DIRECTORY",\n    pat_str={card.pattern[0]!r},\n'
            '    mergeable_ranks=load_tiktoken_bpe("DIRECTORY/vocab.tiktoken"),\n'
            f"    special_tokens={card.special_tokens!r},\n)"
        )
    text = "## How to load it\n\n" + "\n\n".join(f"```python\n{example}\n```" for example in examples)
    if "load_tiktoken_bpe" in examples[-1]:
        text += (
            "\n\ntiktoken keeps files by their path: where another version was at this one, "
            'set `os.environ["TIKTOKEN_CACHE_DIR"] = ""` before.'
        )
    text += (
        "\n\ntransformers makes the id of a special token where a text has its name; `tokenizer(text, split_special_tokens=True)` "
        "takes it for text, as a build does by default. A model takes its numbers from the tokenizer, since the default ids of "
        "transformers may be other tokens here:\n\n```python\nfrom transformers import AutoTokenizer, LlamaConfig\n"
        'tokenizer = AutoTokenizer.from_pretrained("DIRECTORY")\nconfig = LlamaConfig(\n'
        "    vocab_size=max(tokenizer.get_vocab().values()) + 1,\n    bos_token_id=tokenizer.bos_token_id,\n"
        "    eos_token_id=tokenizer.eos_token_id,\n    pad_token_id=tokenizer.pad_token_id,\n)\n```"
    )
    if reason := card.engines.get("tiktoken"):
        text += f"\n\ntiktoken does not give the same ids: {reason}."
    if card.llama_cpp is not None:
        text += f"\n\n{card.llama_cpp}"
    return text


def _largest(scripts: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(scripts.items(), key=lambda item: -item[1])[:8]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    kind = pa.large_binary() if pa.types.is_binary(column.type) else column.type
    return column.cast(kind).combine_chunks()
