"""Files tokenizer.json of character-level BPE with byte fallback, in the shapes of published ones."""

import json
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, trainers

TEXTS = [
    "the cat sat  on the\tmat, äöü 中文中文 the",
    "  a   b    c \n\n the then   there ",
    "abab ab a b ba 😀😀 über die",
] * 20
SPECIALS = ["<unk>", "<s>", "</s>"]
ADDED = [
    {"content": "<left>", "lstrip": True},
    {"content": "<right>", "rstrip": True},
    {"content": "<word>", "single_word": True},
    {"content": "<s>x", "lstrip": True, "rstrip": True},
]


def document(prepends: bool = True, trained_in_words: bool = True) -> dict[str, Any]:
    """A tokenizer that is trained here; out of words, tokens have spaces inside."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prepends else replace
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    if trained_in_words:
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("▁", "merged_with_next")
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=360 if trained_in_words else 420, special_tokens=SPECIALS + byte_tokens, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    made: dict[str, Any] = json.loads(tokenizer.to_str())
    made["pre_tokenizer"] = None
    made["added_tokens"] = [one for one in made["added_tokens"] if one["content"] not in byte_tokens]
    return made


def with_added(made: dict[str, Any]) -> dict[str, Any]:
    """The same with the added tokens."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    first = max(made["model"]["vocab"].values()) + 1
    made["added_tokens"] += [{**plain, "id": first + i, **one} for i, one in enumerate(ADDED)]
    return made


def with_metaspace(made: dict[str, Any], scheme: str, split: bool) -> dict[str, Any]:
    """The mark comes from the pre-tokenizer, as in newer conversions of such tokenizers."""
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
    return made | {"normalizer": None, "pre_tokenizer": metaspace}


def like_gemma() -> dict[str, Any]:
    """Runs of line breaks and of marks are added tokens, and text is split at spaces after they are marked."""
    made = document(prepends=False, trained_in_words=False)
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    vocab = made["model"]["vocab"]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    for text in ("\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "<table>"):
        made["added_tokens"].append({"id": vocab.setdefault(text, len(vocab)), "content": text, **plain})
    return made | {"pre_tokenizer": split}


def like_phi_3() -> dict[str, Any]:
    """As Llama-2, with added tokens that take the white space after them, one of them in place of a special token."""
    made = document()
    made["added_tokens"][2].update(rstrip=True, special=False)
    plain = {"single_word": False, "lstrip": False, "normalized": False, "special": True}
    first = max(made["model"]["vocab"].values()) + 1
    for i, text in enumerate(("<left>", "<right>", "<word>")):
        made["added_tokens"].append({"id": first + i, "content": text, "rstrip": i > 0, **plain})
    return made


def with_normalized(made: dict[str, Any], *places: int) -> dict[str, Any]:
    """The same with added tokens that are searched for after normalizing, as <unk> in conversions of Llama 2."""
    for i in places:
        made["added_tokens"][i]["normalized"] = True
    return made


SHAPES = {
    "words": document(),
    "no space in front": document(prepends=False),
    "spaces inside tokens": document(trained_in_words=False),
    "added tokens": with_added(document()),
    "gemma": like_gemma(),
    "phi-3": like_phi_3(),
    "normalized unknown token": with_normalized(document(), 0),
    "normalized tokens": with_normalized(with_added(document()), 0, 1, 3, 4, 5, 6),
    "normalized tokens, no space in front": with_normalized(with_added(document(prepends=False)), 1, 3, 5),
    "normalized tokens, metaspace": with_normalized(
        with_added(with_metaspace(document(), "first", split=True)), 0, 3, 6
    ),
    "normalized tokens, metaspace always": with_normalized(
        with_added(with_metaspace(document(), "always", split=False)), 2, 4, 5
    ),
    "metaspace always": with_added(with_metaspace(document(), "always", split=False)),
    "metaspace first": with_added(with_metaspace(document(), "first", split=False)),
    "metaspace never": with_metaspace(document(trained_in_words=False), "never", split=False),
    "metaspace first and split": with_added(with_metaspace(document(trained_in_words=False), "first", split=True)),
    "metaspace always and split": with_added(with_metaspace(document(trained_in_words=False), "always", split=True)),
}
