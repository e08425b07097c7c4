"""The tokenizer: text to ids and back, whichever engine and file it comes from."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tokenmill import patterns, tiktoken_file, tokenizer_json
from tokenmill.core_engine import engine_of
from tokenmill.errors import CorpusError, ParamsError, SpecialTokenError, TokenizerError
from tokenmill.files import write_atomic
from tokenmill.pre_tokenizer import BeyondCore
from tokenmill.special_tokens import Refusal, SpecialTokensInText, check_policy
from tokenmill.texts import Texts, one_array
from tokenmill.threads import threads_or_all
from tokenmill.tokenizer_document import read_document
from tokenmill.tokenizer_files import read_tokenizer_file
from tokenmill.vocabulary import Model, digest_of

_UNLIMITED = 1000000000000000019884624838656  # transformers' model_max_length for a tokenizer without one


class _Engine(Protocol):
    def encode(self, text: str) -> list[int]: ...
    def encode_batch(self, texts: Any, threads: int, end_id: int | None = None) -> Any: ...
    def decode_bytes(self, ids: Sequence[int]) -> bytes: ...
    def decode_batch(self, ids: Any, threads: int) -> Any: ...


class Tokenizer:
    """Text to ids and back. Text never becomes a special token unless a call allows it: those are ids that a program adds.

    `train_vocab` and `Tokenizer.load` make one. `engine` is "core", or "tokenizers" where the core would not give the very
    ids of that library; `engine_reason` says what the core cannot do.
    """

    engine: str
    engine_reason: str | None
    digest: str
    """sha256, in hex, over vocabulary, merges, pattern and added tokens."""
    steps: tuple[str, ...] | None
    """The split pattern as regexes, one applied after another; None with the engine tokenizers."""
    special_tokens: dict[str, int]
    n_merges: int | None
    _document: dict[str, Any]

    def __init__(self, model: Model, place: str = "tokenizer") -> None:
        """Of a model for the core; raises TokenizerError, beginning with `place`, when it contradicts itself."""
        try:
            self._engine: _Engine = engine_of(model, allow_special=False)
        except TokenizerError as error:
            raise TokenizerError(f"{place}: {error}") from None
        self._make_allowing: Callable[[], _Engine] = lambda: engine_of(model, allow_special=True)
        self._hides_special = model.nfc and any(one.special and one.normalized for one in model.added)
        self._model: Model | None = model
        self._content = b""
        self._tokens = model.token_bytes()
        self.engine, self.engine_reason = "core", None
        self.digest = digest_of(model)
        self.steps = model.steps
        self.special_tokens = {one.text: one.id for one in model.added if one.special}
        self.n_merges = len(model.merges)

    @classmethod
    def load(
        cls, path: str | Path, pattern: str | None = None, special_tokens: Mapping[str, int] | None = None
    ) -> "Tokenizer":
        """The tokenizer in a directory (its tokenizer.json), a tokenizer.json, or a .tiktoken file.

        `pattern` (a name or a regex) and `special_tokens` (ids by text) go with a .tiktoken file, which holds neither.
        Raises TokenizerError, PatternError.
        """
        path = Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        content = read_tokenizer_file(file)
        if file.suffix != ".tiktoken":
            if pattern is not None or special_tokens is not None:
                raise TokenizerError(
                    f"{file}: pattern= and special_tokens= go with a .tiktoken file; tokenizer.json has its own."
                )
            return cls._from_json(content, str(file))
        if pattern is None:
            names = ", ".join(patterns.names())
            raise TokenizerError(
                f"{file}: a .tiktoken file does not say how text is split. Give pattern=: {names}, or a regex."
            )
        steps = patterns.steps_of(pattern)
        ranks = tiktoken_file.read_ranks(content, str(file))
        return cls(tiktoken_file.model_of(ranks, steps, special_tokens or {}, str(file)), str(file))

    @classmethod
    def _from_json(cls, content: bytes, place: str) -> "Tokenizer":
        document = read_document(content, place)
        try:
            return cls(tokenizer_json.model_of(document), place)
        except BeyondCore as beyond:
            return cls._from_tokenizers(document, content, place, str(beyond))

    @classmethod
    def _from_tokenizers(cls, document: dict[str, Any], content: bytes, place: str, reason: str) -> "Tokenizer":
        from tokenmill.tokenizers_engine import TokenizersEngine

        engine = TokenizersEngine(document, content, place)
        self = cls.__new__(cls)
        self._engine, self._model, self._content, self._tokens = engine, None, content, engine.tokens
        self._document = document
        self._make_allowing = lambda: TokenizersEngine(document, content, place, allow_special=True)
        self._hides_special = document.get("normalizer") is not None and any(
            one["special"] and one["normalized"] for one in document["added_tokens"]
        )
        self.engine, self.engine_reason = "tokenizers", reason
        self.digest, self.steps, self.n_merges = engine.digest, None, None
        self.special_tokens = {one["content"]: one["id"] for one in document["added_tokens"] if one["special"]}
        return self

    def save(self, directory: str | Path, end_of_document: str | None = None) -> None:
        """Writes tokenizer.json, tokenizer_config.json and, for the engine core, vocab.tiktoken, each in one step.

        The ids are the same in tokenizers, transformers and tiktoken. `end_of_document`: the special token that
        tokenizer_config.json is to name as eos_token. Loaded again, the digest is the same; but for a tokenizer from a
        .tiktoken file, whose merges may share a rank, which tokenizer.json cannot say. Raises ParamsError for an
        `end_of_document` that is no special token, PatternError for a regex that tokenizers would read otherwise.
        """
        if end_of_document is not None and end_of_document not in self.special_tokens:
            known = ", ".join(self.special_tokens) or "none"
            raise ParamsError(
                f"end_of_document: {end_of_document!r} is no special token of this tokenizer; it has: {known}."
            )
        config: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": _UNLIMITED,
            "clean_up_tokenization_spaces": False,
        }
        if end_of_document is not None:
            config["eos_token"] = end_of_document
        files = {"tokenizer.json": self._content, "tokenizer_config.json": _json(config)}
        if self._model is not None:
            files["tokenizer.json"] = _json(self.document)
            files["vocab.tiktoken"] = tiktoken_file.write_ranks(self._model)
        for name, content in files.items():
            with write_atomic(Path(directory) / name) as partial:
                partial.write_bytes(content)

    def encode(self, text: str, special: SpecialTokensInText = "as_text") -> list[int]:
        """The ids of one text. `special`: what becomes of the texts of special tokens in it.

        Raises TokenizerError for a byte that no token stands for, CorpusError for no Unicode text, SpecialTokenError.
        """
        try:
            self._check_special(special, [text])
            return self._engine_for(special).encode(text)
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"the text has a lone surrogate at character {error.start}. Decode it with errors='replace'."
            ) from None

    def encode_batch(
        self,
        texts: Texts,
        threads: int | None = None,
        end_id: int | None = None,
        special: SpecialTokensInText = "as_text",
    ) -> pa.LargeListArray:
        """An array large_list<uint32>, a list a text, each ended by `end_id` if given; not copied from the core.

        `texts`: a list of str or bytes, or any Arrow string array or stream. `threads`: None takes all cores. `special`: what
        becomes of the texts of special tokens: as_text, allow (their ids), or reject. Raises CorpusError for a text that is
        null or no UTF-8, SpecialTokenError for one to be rejected, TokenizerError for a byte that no token stands for, and
        for an unknown `end_id`.
        """
        if end_id is not None:
            self.token_bytes(end_id)
        array = one_array(texts)
        found = self._engine_for(special).encode_batch(array, threads_or_all(threads), end_id)
        if special == "reject":  # after the engine, which has seen to it that these are texts
            self._check_special(special, array.cast(pa.large_string()).to_pylist())
        return pa.LargeListArray.from_arrays(found.offsets, found.values)  # the core's field of items is not nullable

    def _engine_for(self, special: SpecialTokensInText) -> _Engine:
        check_policy(special)
        return self._allowing if special == "allow" else self._engine

    def _check_special(self, special: SpecialTokensInText, texts: Sequence[str]) -> None:
        if special != "reject":
            return
        for i, text in enumerate(texts):
            self._refusal.check(text, i)
            if self._hides_special:
                made = set(self._allowing.encode(text)) - set(self._engine.encode(text))
                for token, id in self.special_tokens.items():
                    if id in made:
                        raise SpecialTokenError(i, None, token)

    @cached_property
    def _allowing(self) -> _Engine:
        return self._make_allowing()

    @cached_property
    def _refusal(self) -> Refusal:
        return Refusal(self.special_tokens)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included; bytes that are no UTF-8 become U+FFFD. Raises TokenizerError."""
        return self.decode_bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids, special tokens included. Raises TokenizerError for an id that is not in the vocabulary."""
        try:
            return self._engine.decode_bytes(ids)
        except OverflowError:
            raise TokenizerError(f"ids: expected integers from 0 to {self.id_max}; found one beyond 32 bits.") from None

    def decode_batch(self, ids: pa.ListArray | pa.LargeListArray, threads: int | None = None) -> pa.LargeBinaryArray:
        """An array large_binary, the bytes of each list of uint16 or uint32. Raises TokenizerError."""
        return self._engine.decode_batch(ids, threads_or_all(threads))

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token, those of an added one being its text. Raises TokenizerError for an unknown id."""
        if id not in self._tokens:
            raise TokenizerError(f"id {id} is not in the vocabulary; its largest id is {self.id_max}.")
        return self._tokens[id]

    @property
    def vocab_size(self) -> int:
        """The number of tokens, special ones included."""
        return len(self._tokens)

    @property
    def id_max(self) -> int:
        """The largest id; larger than vocab_size - 1 where ids have holes."""
        return max(self._tokens)

    @property
    def pattern(self) -> str | None:
        """The name of the split pattern, or its regex; None without a split, and for several steps without a name."""
        if not self.steps:
            return None
        return patterns.name_of(self.steps) or (self.steps[0] if len(self.steps) == 1 else None)

    @property
    def ids(self) -> list[int]:
        """Every id that a token has, in order."""
        return sorted(self._tokens)

    @property
    def model(self) -> Model | None:
        """What the core runs, as plain data; None with the engine tokenizers."""
        return self._model

    @property
    def document(self) -> dict[str, Any]:
        """The tokenizer.json of this tokenizer, as `save` writes it, but for a file that is written as it was."""
        if self._model is None:
            return self._document
        return tokenizer_json.document_of(tiktoken_file.with_own_ranks(self._model))

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.vocab_size:,} tokens, engine {self.engine}, digest {self.digest[:16]}>"


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode()
