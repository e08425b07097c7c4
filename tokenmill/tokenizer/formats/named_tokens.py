"""The special and added tokens that the files beside a tokenizer.json name, in the order in which transformers adds them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from tokenmill.errors import TokenizerError, shown
from tokenmill.tokenizer.model import FLAGS

CONFIG_FILE = "tokenizer_config.json"
SPECIAL_MAP_FILE = "special_tokens_map.json"
ADDED_FILE = "added_tokens.json"
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The names that every tokenizer of transformers may give to special tokens, in the order in which it adds these tokens."""


class ConfiguredToken(NamedTuple):
    """An added token of a configuration. `normalized`: None where the configuration does not say it: a special token then is
    not normalized, and any other is."""

    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool | None = None

    def flags(self) -> dict[str, Any]:
        normalized = not self.special if self.normalized is None else self.normalized
        return {**{flag: getattr(self, flag) for flag in FLAGS}, "normalized": normalized}


class Named(NamedTuple):
    """The tokens in the files. `listed`: tokens with flags, which transformers adds first. `named`: special tokens by name.
    `extra`: special tokens without names."""

    listed: list[ConfiguredToken]
    named: dict[str, str | ConfiguredToken]
    extra: list[str | ConfiguredToken]

    def in_order(self, known: set[str]) -> list[ConfiguredToken]:
        """The tokens that transformers adds to those that are known, with the flags that it gives them."""
        known = known | {token.content for token in self.listed}
        added: dict[str | ConfiguredToken, None] = dict.fromkeys(
            value for value in [*self.named.values(), *self.extra] if text_in(value) not in known
        )
        tokens = [*self.listed, *added]
        names = {text_in(value) for value in self.named.values()}
        return [
            ConfiguredToken(token, special=True)
            if isinstance(token, str)
            else token._replace(special=token.special or token.content in names)
            for token in tokens
        ]

    def renewed(self, how: str) -> list[ConfiguredToken]:
        """The special tokens that a class adds a second time: as they are, or with flags off."""
        return [
            ConfiguredToken(str(text_in(one)), special=True)
            if isinstance(one, str) or how == "flags off"
            else one._replace(special=True)
            for one in [*self.named.values(), *self.extra]
        ]


def named_in(
    files: Mapping[str, Mapping[str, Any]], own: list[dict[str, Any]], defaults: Mapping[str, str], directory: Path
) -> Named:
    """The tokens that the files of a folder name, each file {} if it is missing. `own`: the added tokens of tokenizer.json.
    `defaults`: names that count if no file has them. Raises TokenizerError."""
    settings, listed = _settings(files, own, directory)
    return Named(listed, *_named(settings, defaults, directory))


def _settings(
    files: Mapping[str, Mapping[str, Any]], own: list[dict[str, Any]], directory: Path
) -> tuple[dict[str, Any], list[ConfiguredToken]]:
    """The settings as transformers passes them to the class, and the added tokens that it adds first, in order."""
    settings = dict(files[CONFIG_FILE])
    if "additional_special_tokens" in settings and not settings.get("extra_special_tokens"):
        settings["extra_special_tokens"] = settings.pop("additional_special_tokens")
    specific = {
        key: settings.pop(key)
        for key, value in [*settings.items()]
        if key.endswith("_token") and key not in NAMES and isinstance(value, str)
    }
    if isinstance(settings.get("extra_special_tokens"), dict):
        specific |= settings.pop("extra_special_tokens")
    if specific:
        settings["model_specific_special_tokens"] = specific
    where = f"{directory / CONFIG_FILE}: added_tokens_decoder"
    if "added_tokens_decoder" in settings:
        listed = settings["added_tokens_decoder"]
        if not isinstance(listed, dict):
            raise TokenizerError(where, f"expected an object; found {shown(listed)}.")
        by_id = {_id(id, where): _token(token, f"{where}[{id}]") for id, token in listed.items()}
    else:
        by_id = _older(files, settings, own, directory)
    in_order = [by_id[id] for id in sorted(by_id)]
    by_text = {token.content: token for token in in_order}
    for key in NAMES:
        value = settings.get(key)
        if isinstance(value, str):
            settings[key] = by_text.get(value, value)
        elif _is_typed(value):
            settings[key] = by_text.get(value["content"], value)
    return settings, in_order


def _older(
    files: Mapping[str, Mapping[str, Any]], settings: dict[str, Any], own: list[dict[str, Any]], directory: Path
) -> dict[int, ConfiguredToken]:
    """The added tokens by id if tokenizer_config.json lists none: those of the older files and of tokenizer.json. The names of
    special tokens in special_tokens_map.json go into `settings`."""
    for key, value in files[SPECIAL_MAP_FILE].items():
        if isinstance(value, dict) and key != "extra_special_tokens":
            value = _token(value, f"{directory / SPECIAL_MAP_FILE}: {key}")._replace(special=True)
        elif key == "extra_special_tokens" and isinstance(value, list):
            extra_tokens = list(settings.get("extra_special_tokens") or [])
            for token in value:
                token = (
                    _token(token, str(directory / SPECIAL_MAP_FILE))._replace(special=True)
                    if isinstance(token, dict)
                    else token
                )
                extra_tokens += [] if token in extra_tokens else [token]
            value = extra_tokens
        settings[key] = value
    if isinstance(settings.get("extra_special_tokens"), dict):
        settings.setdefault("model_specific_special_tokens", {}).update(settings.pop("extra_special_tokens"))
    special = {text_in(settings.get(key)) for key in NAMES} | {
        text_in(extra_special_token) for extra_special_token in settings.get("extra_special_tokens") or []
    }
    by_id = {}
    for text, id in files[ADDED_FILE].items():
        where = f"{directory / ADDED_FILE}: {text!r:.60}"
        if type(id) is not int:
            raise TokenizerError(where, f"expected an id; found {shown(id)}.")
        by_id[id] = ConfiguredToken(text, special=text in special, normalized=text not in special)
    for token in own:
        by_id[token["id"]] = ConfiguredToken(token["content"], **{flag: token[flag] for flag in FLAGS})
    return by_id


def _named(
    settings: dict[str, Any], defaults: Mapping[str, str], directory: Path
) -> tuple[dict[str, str | ConfiguredToken], list[str | ConfiguredToken]]:
    """The special tokens that have names, in the order in which transformers adds them, and those without names."""
    settings = {**defaults, **settings}
    if "additional_special_tokens" in settings and "extra_special_tokens" not in settings:
        settings["extra_special_tokens"] = settings.pop("additional_special_tokens")
    extra = settings.pop("extra_special_tokens", None) or []
    specific = settings.pop("model_specific_special_tokens", None) or {}
    if not isinstance(extra, list) or not isinstance(specific, dict):
        raise TokenizerError(
            directory, f"extra_special_tokens in {CONFIG_FILE} or {SPECIAL_MAP_FILE}: expected a list of texts."
        )
    others = {
        key: value
        for key, value in settings.items()
        if key.endswith("_token")
        and key not in NAMES
        and (isinstance(value, str | ConfiguredToken) or _is_typed(value))
    }
    wanted = {key: settings[key] for key in NAMES if settings.get(key) is not None} | others | specific
    named = {key: _value(value, f"{directory}: {key}") for key, value in wanted.items()}
    return named, [_value(one, f"{directory}: extra_special_tokens") for one in extra]


def _is_typed(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and value.get("__type") == "AddedToken" and isinstance(value.get("content"), str)


def _value(value: Any, where: str) -> str | ConfiguredToken:
    if isinstance(value, str | ConfiguredToken):
        return value
    if _is_typed(value):
        return _token(value, where)
    raise TokenizerError(
        where, f"expected the text of a special token; found {shown(value)}, which transformers refuses too."
    )


def text_in(value: Any) -> str | None:
    """The text of a special token; None for what is none."""
    return value.content if isinstance(value, ConfiguredToken) else value if isinstance(value, str) else None


def _token(value: Any, where: str) -> ConfiguredToken:
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise TokenizerError(where, f"expected an added token, an object with content; found {shown(value)}.")
    flags = {flag: value[flag] for flag in FLAGS if value.get(flag) is not None}
    if wrong := [flag for flag, is_set in flags.items() if not isinstance(is_set, bool)]:
        raise TokenizerError(f"{where}: {wrong[0]}", f"expected true or false; found {shown(flags[wrong[0]])}.")
    return ConfiguredToken(value["content"], **flags)


def _id(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise TokenizerError(where, f"expected ids; found {shown(text)}.") from None
