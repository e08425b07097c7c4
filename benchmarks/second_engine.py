"""make bench-second: the engine `tokenizers` beside the library that it calls, over ten shapes of tokenizer.json.

The tokenizers are trained here on the first part of the text. Both encode the same documents in turns, in one process and on one
core; the library's time is that of `encode_batch_fast` with special tokens as text, and of its ids as lists. The ids of all
documents are compared before a time counts, under both policies. What this does not show: more threads, other languages, and
loading. It writes no record.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from benchmarks.corpus import documents
from benchmarks.harness import in_turns
from benchmarks.process import bind, timed
from tokenmill import Tokenizer

_VOCAB_SIZE = 8000
_UNK = "[UNK]"
_ADDED = [
    tokenizers.AddedToken(text, normalized=normalized) for text, normalized in (("the", False), ("tokenizer", True))
]
_SPACES = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
_MODELS: dict[str, tuple[Callable[[], Any], Callable[..., Any], Any]] = {
    "WordPiece": (
        partial(models.WordPiece, unk_token=_UNK),
        trainers.WordPieceTrainer,
        pre_tokenizers.BertPreTokenizer(),
    ),
    "Unigram": (models.Unigram, partial(trainers.UnigramTrainer, unk_token=_UNK), pre_tokenizers.Metaspace()),
    "WordLevel": (lambda: models.WordLevel(unk_token=_UNK), trainers.WordLevelTrainer, _SPACES),
    "BPE": (lambda: models.BPE(unk_token=_UNK), trainers.BpeTrainer, pre_tokenizers.Metaspace()),
}
_SHAPES: list[tuple[str, Any, bool]] = [
    ("WordPiece", None, False),
    ("WordPiece", normalizers.BertNormalizer(), False),
    ("WordPiece", normalizers.BertNormalizer(), True),
    ("Unigram", None, False),
    ("Unigram", normalizers.NFKC(), False),
    ("Unigram", normalizers.NFKC(), True),
    ("WordLevel", None, False),
    ("WordLevel", normalizers.Lowercase(), True),
    ("BPE", None, False),
    ("BPE", normalizers.NFKC(), True),
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.second_engine", description=__doc__)
    parser.add_argument("--text-mb", type=float, default=3)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    bind(1)
    texts = documents(int(asked.text_mb * 1e6))
    print(f"{sum(map(len, texts)) / 1e6:.1f} million characters in {len(texts):,} documents; seconds of the processor")
    for model, normalizer, has_added in _SHAPES:
        own, peer = _loaded(_trained(model, normalizer, has_added, texts))
        own_s, peer_s = _measured(own, peer, texts, asked.turns)
        kind = type(normalizer).__name__ if normalizer else "no normalizer"
        what = f"{model}, {kind}{', added tokens' if has_added else ''}"
        print(f"{what:46} tokenizers {peer_s:6.2f}  tokenmill {own_s:6.2f}  {own_s / peer_s:.2f} x", flush=True)


def _trained(model: str, normalizer: Any, has_added: bool, texts: Sequence[str]) -> Any:
    make, trainer, pre_tokenizer = _MODELS[model]
    tokenizer = tokenizers.Tokenizer(make())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(
        texts[: len(texts) // 3],
        trainer(vocab_size=_VOCAB_SIZE, special_tokens=[_UNK, "[CLS]", "[SEP]"], show_progress=False),
    )
    if has_added:
        tokenizer.add_tokens(_ADDED)
    return tokenizer


def _loaded(trained: Any) -> tuple[Tokenizer, Any]:
    """Both from the file: a Unigram model that was just trained may give other ids than its own file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        trained.save(str(path))
        own, peer = Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))
    assert own.engine == "tokenizers"
    return own, peer


def _measured(own: Tokenizer, peer: Any, texts: list[str], n_turns: int) -> tuple[float, float]:
    """The lowest seconds of each, since other programs can only add some. Their ids were found to be equal."""
    batch = pa.array(texts, pa.large_string())
    ways: dict[str, Callable[[], Any]] = {
        "own": lambda: own.encode_batch(batch, threads=1),
        "peer": lambda: [one.ids for one in peer.encode_batch_fast(texts, add_special_tokens=False)],
    }
    assert own.encode_batch(batch, threads=1, special="allow").to_pylist() == ways["peer"]()
    peer.encode_special_tokens = True
    assert ways["own"]().to_pylist() == ways["peer"]()
    cpu_s = in_turns({way: partial(_cpu_s, encode) for way, encode in ways.items()}, n_turns)
    return min(cpu_s["own"]), min(cpu_s["peer"])


def _cpu_s(encode: Callable[[], Any]) -> float:
    """The processor time of one run, whose ids are not kept."""
    return timed(encode).cpu_s


if __name__ == "__main__":
    main()
