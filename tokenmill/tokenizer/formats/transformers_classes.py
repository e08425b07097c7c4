"""The tokenizer classes of transformers that do not use a tokenizer.json as it is.

AutoTokenizer chooses a class by `tokenizer_class` of tokenizer_config.json and `model_type` of config.json. Since transformers 5,
some classes take only the vocabulary and the merges from tokenizer.json, and split text in their own way. The tables in
transformers_classes.json are those of transformers 5.23; a test compares them with the installed one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tokenmill import _core

_TABLES = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes())
ANOTHER = frozenset(_TABLES["another"])
"""Classes that do not use tokenizer.json as it is, and of which tokenmill cannot say what they make of it."""

_ALIASES: dict[str, str] = _TABLES["aliases"]
_PLAIN = "TokenizersBackend"
_ANOTHER = "another"
_CLASS_OF = {one: name for name, types in _TABLES["model_types"].items() for one in types}
"""The class that transformers registers for each model type. "another": one of `ANOTHER`."""
_MISNAMED = frozenset(_TABLES["misnamed"])
"""Model types for which the registered class counts, whatever tokenizer_config.json says."""


@dataclass(frozen=True)
class Built:
    """The settings that a class gives a vocabulary: sections of tokenizer.json, fields of its model, and its special tokens by name
    unless the configuration overrides them. `renews`: how it adds its special tokens a second time: with all flags off, or as they
    are."""

    kind: str
    normalizer: dict[str, Any] | None
    pre_tokenizer: dict[str, Any]
    decoder: dict[str, Any]
    model: dict[str, Any]
    named: dict[str, str] = field(default_factory=dict)
    renews: str | None = None


def class_of(config: Mapping[str, Any], model_config: Mapping[str, Any], is_byte_level: bool) -> str | None:
    """The name of the class that AutoTokenizer takes, if it does not use tokenizer.json as it is; else None.

    `config` and `model_config`: tokenizer_config.json and config.json, {} for a missing one."""
    own = config.get("tokenizer_class")
    declared = str(own or model_config.get("tokenizer_class") or "").removesuffix("Fast")
    model_type = model_config.get("model_type")
    registered = _CLASS_OF.get(model_type) if isinstance(model_type, str) else None
    if declared == "LlamaTokenizer" and is_byte_level and model_type not in _MISNAMED:
        return None
    if registered == _PLAIN and declared:
        return None
    name = registered if model_type in _MISNAMED or not declared else declared
    if name == _ANOTHER:
        return f"the class of model_type {model_type}"
    name = _ALIASES.get(str(name), name)
    return name if name in _BUILDERS or name in ANOTHER else None


def built_by(name: str, config: Mapping[str, Any]) -> Built | None:
    """The settings that the class gives a vocabulary; None if unknown."""
    return _BUILDERS[name](config) if name in _BUILDERS else None


def _byte_level(
    config: Mapping[str, Any],
    named: Mapping[str, str],
    regex: str | None = None,
    digits: bool = False,
    nfc: bool = False,
    renews: str | None = None,
) -> Built:
    last = {
        "type": "ByteLevel",
        "add_prefix_space": bool(config.get("add_prefix_space")),
        "trim_offsets": True,
        "use_regex": regex is None,
    }
    before: list[dict[str, Any]] = []
    if digits:
        before.append({"type": "Digits", "individual_digits": True})
    if regex is not None:
        before.append({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False})
    return Built(
        "BPE",
        {"type": "NFC"} if nfc else None,
        {"type": "Sequence", "pretokenizers": [*before, last]} if before else last,
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"unk_token": None, "fuse_unk": False, "byte_fallback": False},
        dict(named),
        renews,
    )


def _llama(config: Mapping[str, Any]) -> Built:
    is_spaced = config.get("add_prefix_space") in (None, True)
    scheme = "never" if not is_spaced else "always" if config.get("legacy") else "first"
    decoders = [*_CHARACTERS, *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if is_spaced else [])]
    return Built(
        "BPE",
        None,
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False},
        {"type": "Sequence", "decoders": decoders},
        {"unk_token": None, "fuse_unk": True, "byte_fallback": True},
        {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    )


def _gemma(config: Mapping[str, Any]) -> Built:
    named = {f"{name}_token": f"<{name}>" for name in ("unk", "bos", "eos", "pad", "mask")}
    return Built(
        "BPE",
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        {"type": "Sequence", "decoders": _CHARACTERS},
        {"unk_token": text_of(config.get("unk_token", "<unk>")), "fuse_unk": True, "byte_fallback": True},
        named,
    )


def _bert(config: Mapping[str, Any]) -> Built:
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": config.get("strip_accents"),
        "lowercase": config.get("do_lower_case", True),
    }
    model = {
        "unk_token": text_of(config.get("unk_token", "[UNK]")),
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    return Built(
        "WordPiece",
        normalizer,
        {"type": "BertPreTokenizer"},
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        model,
        {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")},
    )


def text_of(token: Any) -> Any:
    """The text of a special token, which a configuration has as a text or as an object."""
    return token.get("content") if isinstance(token, dict) else token


_CHARACTERS = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_END = "<|endoftext|>"
_THREE = {"unk_token": _END, "bos_token": _END, "eos_token": _END}
_QWEN = {"unk_token": _END, "eos_token": _END, "pad_token": _END}
_COHERE = {
    "unk_token": "<UNK>",
    "bos_token": "<BOS_TOKEN>",
    "eos_token": "<|END_OF_TURN_TOKEN|>",
    "pad_token": "<PAD>",
    "cls_token": "<CLS>",
    "sep_token": "<SEP>",
    "mask_token": "<MASK_TOKEN>",
}
_ROBERTA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_QWEN2_REGEX = _core.patterns()["qwen2"][0]
_QWEN3_5_REGEX = _QWEN2_REGEX.replace(r"\p{L}+|", r"[\p{L}\p{M}]+|").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"
)
_BUILDERS: dict[str, Callable[[Mapping[str, Any]], Built]] = {
    "BertTokenizer": _bert,
    "CodeGenTokenizer": lambda config: _byte_level(config, _THREE),
    "CohereTokenizer": lambda config: _byte_level(config, _COHERE, digits=True, nfc=True, renews="as they are"),
    "GPT2Tokenizer": lambda config: _byte_level(config, _THREE),
    "GPTNeoXTokenizer": lambda config: _byte_level(config, {**_THREE, "pad_token": "<|padding|>"}, nfc=True),
    "GemmaTokenizer": _gemma,
    "LlamaTokenizer": _llama,
    "Qwen2Tokenizer": lambda config: _byte_level(config, _QWEN, _QWEN2_REGEX, nfc=True, renews="flags off"),
    "Qwen3_5Tokenizer": lambda config: _byte_level(config, _QWEN, _QWEN3_5_REGEX, nfc=True),
    "RobertaTokenizer": lambda config: _byte_level(config, _ROBERTA),
    "WhisperTokenizer": lambda config: _byte_level(config, _THREE),
}
