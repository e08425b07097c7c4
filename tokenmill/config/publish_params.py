"""The sections tokenizer, publish and refresh of params.yaml: versions that are taken, and those that are made."""

from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from tokenmill.config.section import Section, key
from tokenmill.errors import did_you_mean

LIBRARIES = (
    "fastokens",
    "gigatoken",
    "kitoken",
    "llama.cpp",
    "mistral-common",
    "sentencepiece",
    "sglang",
    "tiktoken",
    "tokenizers",
    "tokenizers-1.0",
    "transformers",
    "transformers-slow",
    "vllm",
)
"""The libraries whose ids can be compared with the tokenizer's."""


class TokenizerSource(Section):
    """A tokenizer to import instead of training one: a published version, a file or a directory."""

    from_: str = key(
        ...,
        "where the tokenizer is: the URL or path of a git repository, a tokenizer.json, a directory with one, a .tiktoken file",
        "tokenizer.json",
        alias="from",
        min_length=1,
    )
    name: str | None = key(
        None,
        "the artifact's name in that repository; given together with version; null: a file or directory",
        "tokenizer",
        pattern=r"^[a-z0-9][a-z0-9/-]*[a-z0-9]$",
    )
    version: str | None = key(
        None, "a version like v1.2.0, or a stage like prod; null: a file or directory", "v1.2.0", min_length=1
    )
    pattern: str | None = key(
        None,
        "for a .tiktoken file, which does not say how text is split: a name or a regex, as in count.pattern; null: the file does",
        "gpt2",
        min_length=1,
    )
    special_tokens: dict[str, int] | None = key(
        None,
        "the special tokens with their ids, for a .tiktoken file, which does not have them; null: none",
        '{"<|endoftext|>": 50256}',
    )

    @field_validator("version")
    @classmethod
    def _both_or_neither(cls, version: str | None, info: ValidationInfo) -> str | None:
        if "name" in info.data and (info.data["name"] is None) != (version is None):
            raise ValueError("found one of name and version; allowed: both (a published version), or neither (a file)")
        return version

    @field_validator("pattern", "special_tokens")
    @classmethod
    def _only_of_a_file(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("name") is not None:
            raise ValueError(
                "found together with name; allowed: only with a .tiktoken file; a published version has its own"
            )
        return value


class Publish(Section):
    """A fact for the model card of a tokenizer that only its owner knows, and what a version must hold."""

    license: str | None = key(
        None,
        "the licence on the tokenizer's model card; null: not stated. It is an SPDX name",
        "apache-2.0",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]*$",
    )
    conform: list[str] = key(
        [],
        "libraries that must give the tokenizer's ids. publish refuses a version for which one that is installed here gives "
        "others, or cannot be compared",
        "[transformers, tiktoken]",
    )

    @field_validator("conform")
    @classmethod
    def _are_libraries(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in LIBRARIES:
                hint = did_you_mean(name, LIBRARIES).rstrip("?").replace(" Did you mean", "; did you mean")
                raise ValueError(f"found {name!r}; allowed: {', '.join(LIBRARIES)}{hint}")
        return names


class Refresh(Section):
    """What `tokenmill refresh` does with new documents: the limits of drift, and what becomes of the result."""

    drift_max: float = key(
        0.1,
        "the largest change of bytes per token from the tokenizer's model card: 0.1 is 10 %",
        "0.2",
        gt=0,
        allow_inf_nan=False,
    )
    new_scripts_max: float = key(
        0.05, "the largest share of characters in scripts that the tokenizer's corpus did not have", "0.01", ge=0, le=1
    )
    drift_bytes_min: int = key(
        100_000,
        "the bytes of new text from which drift_max and new_scripts_max are judged; below, a line says so",
        "1000000",
        ge=0,
    )
    quarantine_max: float = key(
        0.01,
        "the largest share of the new documents in the quarantine; a damaged shard counts as one document",
        "0.001",
        ge=0,
        le=1,
    )
    on_drift: Literal["fail", "candidate"] = key(
        "fail",
        "beyond a limit: fail, or candidate: also train a tokenizer on all documents, for comparison",
        "candidate",
    )
    publish: str | None = key(
        "dataset",
        "the artifact of dvc.yaml that gets its next patch version if it changed; null: none",
        "null",
        min_length=1,
    )
    notify: str | None = key(
        None,
        "a notification block of Prefect that reports failures and drift; null: none",
        "slack-webhook/team",
        pattern=r"^[a-z0-9-]+/[a-z0-9-]+$",
    )
