"""The tokenizer: text to ids and back, with either engine and any file format."""

from __future__ import annotations

import json
import operator
import reprlib
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from tokenmill import _core
from tokenmill.arguments import at_least, threads_or_all
from tokenmill.errors import CorpusError, SpecialTokenError, TokenizerError, TokenmillDeprecationWarning
from tokenmill.pretokenizers import patterns
from tokenmill.pretokenizers.json_steps import BeyondCore
from tokenmill.special_tokens import Refusal, SpecialTokensInText, check_policy
from tokenmill.tokenizer.engine import Engine, texts_for
from tokenmill.tokenizer.formats import tiktoken_file, tokenizer_json
from tokenmill.tokenizer.formats.files import file_of
from tokenmill.tokenizer.ids import Ids, plain_ids, plain_lists, refusal
from tokenmill.tokenizer.model import AddedToken, Model, digest_of, encoder_of
from tokenmill.tokenizer.reading import ForeignModel, read_json, read_model
from tokenmill.tokenizer.saving import as_json, config_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tokenmill.arrow_texts import Texts
    from tokenmill.tokenizer.preparing import Preparation

CACHE_MB_MAX = 256


_T = TypeVar("_T")


class TokenizerReference(NamedTuple):
    """Names a tokenizer for processes that see its folder, `path`. `digest`: what it must be. `cache_mb_max`: see
    `Tokenizer.load`."""

    path: str
    digest: str
    cache_mb_max: int


class Tokenizer:
    """Text to ids and back. Text becomes a special token only if a call allows it: special tokens are for programs to add.

    `train_vocab` and `Tokenizer.load` make one. `engine` is "core", or "tokenizers" if the core could not give exactly that
    library's ids; `engine_reason` then says what the core cannot do.
    """

    engine: str
    engine_reason: str | None
    steps: tuple[str, ...] | None
    """The split pattern as regexes, applied one after another; None with the engine tokenizers."""
    special_tokens: dict[str, int]
    n_merges: int | None
    _reference: TokenizerReference | None
    """How a pickle names it; None: by the whole tokenizer.json."""
    _document: dict[str, Any]
    _digest_of: Callable[[], str]

    def __init__(self, model: Model, place: str | None = None, cache_mb_max: int = CACHE_MB_MAX) -> None:
        """A tokenizer of a model, run by the core. Raises TokenizerError, beginning with `place`, if the model contradicts itself.

        `place` is None for a vocabulary that was just learned: it needs no check, and its engine is made on first use.
        """
        self._cache_mb_max = cache_mb_max
        encoder = cache(
            partial(encoder_of, model)
        )  # no closure holds self, so that memory is freed without the collector
        self._make_engine: Callable[[bool], Engine] = lambda allow: _core_engine(model, encoder(), allow, cache_mb_max)
        self._model: Model | None = model
        if place is not None:
            try:
                _ = self._engine
            except TokenizerError as error:
                raise TokenizerError(*error.inside(place)) from None
        self._with_model: Callable[[Model], Tokenizer] = lambda other: Tokenizer(other, place, cache_mb_max)
        self._hides_special = model.nfc and any(token.special and token.normalized for token in model.added)
        self._content = b""
        self._reference = None
        self._tokens = model.token_bytes()
        self.engine, self.engine_reason = "core", None
        self.steps = model.steps
        self.special_tokens = {token.text: token.id for token in model.added if token.special}
        self.n_merges = len(model.merges)

    @classmethod
    def load(
        cls,
        path: str | Path,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | None = None,
        cache_mb_max: int = CACHE_MB_MAX,
        repo: str | Path | None = None,
        public_key: str | Path | None = None,
    ) -> Tokenizer:
        """The tokenizer in a directory, in a tokenizer.json, or in a .tiktoken file.

        A directory is read as AutoTokenizer of transformers reads it: the files beside its tokenizer.json may add tokens and change
        how text is split. A tokenizer.json that `path` names counts alone.

        `pattern` (a name or a regex) and `special_tokens` (ids by text) belong to a .tiktoken file, which contains neither.
        `cache_mb_max`: the largest size of the pre-token cache for all threads together, in MB (10^6 bytes); it changes no id.
        `repo` and `public_key` are deprecated: the git repository (URL or path) in which `path` is a published version, such as
        "tokenizer@v1.2.0", and the key that must have signed it. Raises TokenizerError, PatternError or VersionsError.
        """
        if repo is not None:
            fix = "Fetch the version with `tokenmill fetch`, and load its folder."
            warnings.warn(TokenmillDeprecationWarning("Tokenizer.load(repo=…)", "0.5.0", fix), stacklevel=2)
            from tokenmill.versioning.registry import load_version

            return load_version(str(path), str(repo), None if public_key is None else Path(public_key), cache_mb_max)
        cache_mb_max = at_least(0, cache_mb_max, "cache_mb_max")
        file = file_of(Path(path))
        return cls.of(read_model(Path(path), pattern, special_tokens), str(file), cache_mb_max)

    @classmethod
    def of(cls, model: Model | ForeignModel, place: str, cache_mb_max: int) -> Tokenizer:
        """The tokenizer of a model that was read from `place`. Raises TokenizerError if the model contradicts itself."""
        if isinstance(model, Model):
            return cls(model, place, cache_mb_max)
        return cls._of_foreign(model, place, cache_mb_max)

    @classmethod
    def _of_foreign(cls, model: ForeignModel, place: str, cache_mb_max: int) -> Tokenizer:
        """A tokenizer that is not byte-level. The core encodes with it if it can do so exactly."""
        from tokenmill.tokenizer.character_engine import CharacterEngine
        from tokenmill.tokenizer.tokenizers_engine import TokenizersEngine

        document, content = model.document, model.content
        reasons = [model.reason]  # that of a tokenizer of characters is the last

        def make(allow: bool) -> TokenizersEngine:
            try:
                return CharacterEngine(document, content, place, allow, min(cache_mb_max * 10**6, sys.maxsize))
            except BeyondCore as beyond:
                if document["model"].get("byte_fallback"):
                    reasons.append(str(beyond))
                return TokenizersEngine(document, content, place, allow)

        engine = make(False)
        self = cls.__new__(cls)
        self._model, self._content, self._tokens = None, content, engine.tokens
        self._document, self._cache_mb_max = document, cache_mb_max
        self._reference = None
        self._make_engine = lambda allow: make(True) if allow else engine.with_own_cache()
        self._hides_special = document.get("normalizer") is not None and any(
            token["special"] and token["normalized"] for token in document["added_tokens"]
        )
        is_core = isinstance(engine, CharacterEngine)
        self.engine, self.engine_reason = ("core", None) if is_core else ("tokenizers", reasons[-1])
        self._digest_of = lambda: engine.digest
        self.steps, self.n_merges = None, None
        self.special_tokens = {token["content"]: token["id"] for token in document["added_tokens"] if token["special"]}
        return self

    def save(
        self,
        directory: str | Path,
        end_of_document: str | None = None,
        begin_of_document: str | None = None,
        pad_token: str | None = None,
        unk_token: str | None = None,
        model_max_length: int | None = None,
    ) -> None:
        """Writes tokenizer.json, tokenizer_config.json and, with the engine core, vocab.tiktoken. Each file is written atomically.

        tokenizers, transformers and tiktoken then give the same ids, with one exception: if `ignore_merges` is set, as for a
        tokenizer from a .tiktoken file, tokenizers turns a pre-token with the text of a special token into that token.
        `begin_of_document`, `end_of_document`: the special tokens that tokenizer_config.json names as bos_token and eos_token;
        `pad_token` and `unk_token` stand there by their own names. `model_max_length`: the largest number of tokens, at which
        transformers truncates on request; None: no limit. Loading the files gives the same digest. Raises ParamsError if one of
        them is not a special token, PatternError for a regex that tokenizers would read differently.
        """
        from tokenmill.storage.atomic import write_atomic

        names = {
            "begin_of_document": begin_of_document,
            "end_of_document": end_of_document,
            "pad_token": pad_token,
            "unk_token": unk_token,
        }
        config = config_of(self.special_tokens, names, model_max_length)
        files = {"tokenizer.json": self._file, "tokenizer_config.json": as_json(config)}
        if self._model is not None:
            files["vocab.tiktoken"] = tiktoken_file.write_ranks(self._model)
        for name, content in files.items():
            with write_atomic(Path(directory) / name) as partial:
                partial.write_bytes(content)

    def encode(self, text: str, special: SpecialTokensInText = "as_text") -> list[int]:
        """The ids of one text. `special` says what the texts of special tokens in it become: as_text, allow (their ids) or reject.

        Raises TokenizerError for a byte without a token, CorpusError for text that is not Unicode, SpecialTokenError.
        """
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str; found {type(text).__name__}.")
        try:
            self._check_special(special, [text])
            return self._engine_for(special).encode(text)
        except UnicodeEncodeError as error:
            raise CorpusError(
                "", f"the text has a lone surrogate at character {error.start}.", "Decode it with errors='replace'."
            ) from None

    def memory_bytes(self, text: str, enough: int, with_spans: bool) -> int:
        """The memory that the library behind the engine takes to encode a text, in bytes; at most, if that is less than `enough`.
        The core takes little beyond the text and its ids, and this gives 0 for it. `with_spans`: also for `character_spans`, which
        the library gives for each tokenizer without a `model`. Raises TokenizerError for a text that cannot be encoded."""
        if not self.asks_library(with_spans):
            return 0
        return self._engine.memory_bytes(text, enough, with_spans)  # type: ignore[attr-defined,no-any-return]

    def asks_library(self, with_spans: bool) -> bool:
        """Whether the tokenizers library encodes texts, or, `with_spans`, says which characters their tokens cover."""
        return self.engine != "core" or (with_spans and self._model is None)

    def encode_batch(
        self,
        texts: Texts,
        threads: int | None = None,
        end_id: int | None = None,
        special: SpecialTokensInText = "as_text",
        begin_id: int | None = None,
    ) -> pa.LargeListArray:
        """A large_list<uint32> array with one list per text, taken from the core without a copy.

        `texts`: a list of str or bytes, or any Arrow string array or stream. `threads`: None uses all cores. `begin_id` begins
        and `end_id` ends each list, if given. `special` says what the texts of special tokens become: as_text, allow (their
        ids) or reject. Raises CorpusError for a text that is null or not UTF-8, SpecialTokenError for a rejected text, and
        TokenizerError for a byte without a token, an unknown `begin_id` or an unknown `end_id`.
        """
        begin_id = None if begin_id is None else self._known(begin_id, "begin_id")
        end_id = None if end_id is None else self._known(end_id, "end_id")
        return self._run(lambda engine, *rest: engine.encode_batch(*rest, begin_id, end_id), texts, threads, special)

    def encode_batch_with_starts(
        self,
        texts: Texts,
        threads: int | None = None,
        end_id: int | None = None,
        special: SpecialTokensInText = "as_text",
        begin_id: int | None = None,
    ) -> tuple[pa.LargeListArray, pa.LargeListArray]:
        """The ids as from `encode_batch`, and for each id the byte offset in its text (in UTF-8) at which its token begins.

        `special`: as_text, allow or reject. The starts are a large_list<uint64> array with one list per text. A token ends
        where the next one begins; the last one ends with the text. An added token found in a text covers its bytes like any
        other token. `begin_id` and `end_id` cover no bytes: they begin where the text begins and ends. Raises what
        `encode_batch` raises. Raises TokenizerError too if the tokens may not add up to the text: with the engine tokenizers,
        and if text is normalized, gets a space in front, or has added tokens with flags.
        """
        begin_id = None if begin_id is None else self._known(begin_id, "begin_id")
        end_id = None if end_id is None else self._known(end_id, "end_id")
        if not isinstance(self._engine_for(special), _core.Encoder):
            reason = (
                self.engine_reason or "text is prepared for it: normalized, spaced, or cut at added tokens with flags"
            )
            raise TokenizerError(
                f"starts of tokens: known only if the tokens add up to the text, which they may not here: {reason}"
            )

        def run(engine: Any, *rest: Any) -> Any:
            return engine.encode_batch_with_starts(*rest, begin_id, end_id)

        found: tuple[pa.LargeListArray, pa.LargeListArray] = self._run(run, texts, threads, special)
        return found

    def count_tokens(
        self, texts: Texts, threads: int | None = None, special: SpecialTokensInText = "as_text"
    ) -> pa.UInt64Array:
        """A uint64 array: the number of ids of each text. `special` (as_text, allow or reject) and errors: as of `encode_batch`."""
        return self._run(lambda engine, *rest: engine.count_tokens(*rest), texts, threads, special)

    def _run(self, run: Callable[..., Any], texts: Texts, threads: int | None, special: SpecialTokensInText) -> Any:
        """The result of `run`, called with the policy's engine, the texts in the form it takes, and the number of threads."""
        import pyarrow as pa

        from tokenmill.arrow_texts import one_array

        engine = self._engine_for(special)
        if special == "reject":
            texts = one_array(texts)
        found = run(engine, texts_for(engine, texts), threads_or_all(threads))
        if special == "reject":  # after the engine, which has checked that these are texts
            self._check_special(special, texts.cast(pa.large_string()).to_pylist())  # type: ignore[union-attr]
        return found

    def warm(self, counts: pa.Table, pretokens_max: int = 2**20, special: SpecialTokensInText = "as_text") -> None:
        """Warms the cache with the ids of the most frequent pre-tokens of `counts`, once for all threads; no id changes.

        `counts`: a table of pretoken and count, as from `Counter.finish`. At most `pretokens_max` pre-tokens are kept, at
        about 64 bytes each, for encoding with this `special` (as_text, allow or reject). With the engine tokenizers this does
        nothing.
        """
        from tokenmill.tokenizer.core_engine import PreparedCore

        engine = self._engine_for(special)
        if counts.num_rows and isinstance(engine, _core.Encoder | PreparedCore):
            import pyarrow.compute as pc

            frequent = pc.select_k_unstable(counts, min(pretokens_max, counts.num_rows), [("count", "descending")])
            engine.warm(counts["pretoken"].take(frequent))

    def _engine_for(self, special: SpecialTokensInText) -> Engine:
        check_policy(special)
        return self._allowing if special == "allow" else self._engine

    def _check_special(self, special: SpecialTokensInText, texts: Sequence[str]) -> None:
        if special != "reject":
            return
        for i, text in enumerate(texts):
            self._refusal.check(text, i)
            if self._hides_special:
                made = set(self._allowing.encode(text)) - set(self._engine.encode(text))
                for token, id in self.special_tokens.items() if made else ():
                    if id in made:
                        raise SpecialTokenError(i, None, token)

    @cached_property
    def _engine(self) -> Engine:
        return self._make_engine(False)

    @cached_property
    def _allowing(self) -> Engine:
        return self._make_engine(True)

    @cached_property
    def _refusal(self) -> Refusal:
        return Refusal(self.special_tokens)

    @property
    def prepares_text(self) -> bool:
        """Whether a text may be changed before it is encoded, so that its ids decode to another text: normalized, or with a space
        in front."""
        return self._model is None or not isinstance(self._engine, _core.Encoder)

    @cached_property
    def preparation(self) -> Preparation:
        """What a byte-level tokenizer does to a text before it splits it. What is counted for it must be prepared so; for any other
        tokenizer, the text as it stands."""
        from tokenmill.tokenizer.preparing import Preparation

        return Preparation() if self._model is None else Preparation.of(self._model)

    def prepared(self, text: str, special: SpecialTokensInText = "as_text") -> bytes:
        """The bytes that the ids of a text decode to; with the engine core. These are the text itself unless `prepares_text`.
        `special`: as_text, allow or reject."""
        from tokenmill.tokenizer.core_engine import PreparedCore

        engine = self._engine_for(special)
        return engine.prepared(text) if isinstance(engine, PreparedCore) else text.encode()

    def character_spans(self, text: str, special: SpecialTokensInText = "as_text") -> list[tuple[int, int]]:
        """For each id of a text, the characters that it covers, as the tokenizers library says; with the engine tokenizers.
        `special`: as_text, allow or reject."""
        from tokenmill.tokenizer.tokenizers_engine import TokenizersEngine

        engine = self._engine_for(special)
        assert isinstance(engine, TokenizersEngine)
        return engine.spans(text)

    def with_special(self, texts: Collection[str]) -> Tokenizer:
        """A copy in which the added tokens with these texts are special, so that `special` rules them, too."""
        if self._model is not None:
            added = (replace(token, special=token.special or token.text in texts) for token in self._model.added)
            return self._with_model(replace(self._model, added=tuple(added)))
        added_tokens = [
            {**token, "special": token["special"] or token["content"] in texts}
            for token in self._document["added_tokens"]
        ]
        document = {**self._document, "added_tokens": added_tokens}
        content = json.dumps(document, ensure_ascii=False).encode()
        foreign = ForeignModel(document, content, self.engine_reason or "")
        return Tokenizer._of_foreign(foreign, "tokenizer.json", self._cache_mb_max)

    @cached_property
    def added_tokens(self) -> tuple[AddedToken, ...]:
        """The tokens that are given by their texts, special ones and others."""
        if self._model is not None:
            return self._model.added
        return tuple(AddedToken.of(token, in_vocab=True) for token in self._document["added_tokens"])

    @cached_property
    def token_lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The number of bytes of each token, by id; 0 for an id without a token."""
        import numpy as np

        lengths = np.zeros(self.id_max + 1, np.int64)
        n_tokens = len(self._tokens)
        lengths[np.fromiter(self._tokens, np.int64, n_tokens)] = np.fromiter(
            map(len, self._tokens.values()), np.int64, n_tokens
        )
        return lengths

    def decode(self, ids: Ids) -> str:
        """The text of ids, special tokens included. Invalid UTF-8 becomes U+FFFD. Raises what `decode_bytes` raises."""
        return self._decoded(ids, self._engine.decode)

    def decode_bytes(self, ids: Ids) -> bytes:
        """The bytes of ids, special tokens included. Raises TokenizerError for an id that is not in the vocabulary or cannot be
        an id, and TypeError for ids that are not integers.

        An Arrow or numpy array of unsigned integers is more than twice as fast as a list.
        """
        return self._decoded(ids, self._engine.decode_bytes)

    def decode_batch(self, ids: Any, threads: int | None = None) -> pa.LargeBinaryArray:
        """A large_binary array: the bytes of each list of ids.

        `ids`: an Arrow array of lists of integers, which is not copied if they are uint16 or uint32; or an iterable of lists
        of any kind that `decode` takes. Raises TokenizerError with the number of the list.
        """
        return self._engine.decode_batch(plain_lists(ids, self.id_max), threads_or_all(threads))

    def decodes_to(self, ids: Any, texts: Any, begin: bytes = b"", end: bytes = b"") -> bool:
        """Whether each list of ids decodes to its text between `begin` and `end`; with the engine core. A list with an unknown id
        does not. `ids`: an Arrow array of lists of uint16 or uint32. `texts`: as many strings, as an Arrow array without nulls."""
        from tokenmill.tokenizer.core_engine import PreparedCore

        engine = self._engine
        assert isinstance(engine, _core.Encoder | PreparedCore)
        return engine.decodes_to(ids, texts, begin, end)

    def _decoded(self, ids: Ids, decode: Callable[[Any], _T]) -> _T:
        plain = plain_ids(ids, self.id_max)
        try:
            if self._model is None:  # tokenizers decodes, which looks ids up as they are
                plain = [operator.index(id) for id in (plain if isinstance(plain, list) else plain.to_pylist())]
            return decode(plain)
        except (TypeError, OverflowError) as error:
            raise refusal(plain, self.id_max, error) from None

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token; for an added token, its text in UTF-8. Raises TokenizerError for an unknown id, and TypeError
        for an id that is not an integer."""
        return self._tokens[self._known(id, "id")]

    @property
    def tokens(self) -> Mapping[int, bytes]:
        """The bytes of every token by id; of an added token, its text in UTF-8."""
        return MappingProxyType(self._tokens)

    def _known(self, id: Any, name: str) -> int:
        """The id as an int. Raises TokenizerError for an unknown id, and TypeError for one that is not an integer."""
        try:
            number = operator.index(id)
        except TypeError:
            raise TypeError(
                f"{name}: expected an integer; found {reprlib.repr(id):.60} ({type(id).__name__})."
            ) from None
        if number not in self._tokens:
            raise TokenizerError(f"{name} {number} is not in the vocabulary; its largest id is {self.id_max}.")
        return number

    @cached_property
    def digest(self) -> str:
        """The sha256, in hex, of the vocabulary, merges, split pattern and added tokens."""
        return self._digest_of() if self._model is None else digest_of(self._saved_model)

    @property
    def vocab_size(self) -> int:
        """The number of tokens, special ones included."""
        return len(self._tokens)

    def get_vocab(self) -> dict[str, int]:
        """The id of each token, by the text with which tokenizer.json writes it and tokenizers and transformers name it."""
        vocab = self.document["model"]["vocab"]
        ids = dict(vocab) if isinstance(vocab, dict) else {text: id for id, (text, _) in enumerate(vocab)}
        return ids | {token.text: token.id for token in self.added_tokens}

    @cached_property
    def id_max(self) -> int:
        """The largest id. It is larger than vocab_size - 1 if some ids are unused."""
        return max(self._tokens)

    @property
    def pattern(self) -> str | None:
        """The name of the split pattern, or its regex. None without a split, and for several steps that have no name."""
        if not self.steps:
            return None
        return patterns.name_of(self.steps) or (self.steps[0] if len(self.steps) == 1 else None)

    @cached_property
    def splitter(self) -> Literal["scanner", "regex"] | None:
        """What splits text in the core: "scanner" is hand-written code for a known pattern, recognised by the pattern's text;
        "regex" runs the pattern with fancy-regex, which is many times slower. None without a split, and with the engine
        tokenizers."""
        return _core.splitter(self.steps) if self.steps else None

    @property
    def ids(self) -> list[int]:
        """The ids of all tokens, in order."""
        return sorted(self._tokens)

    @property
    def model(self) -> Model | None:
        """The data of a byte-level tokenizer, which the core runs; None for any other."""
        return self._model

    @property
    def document(self) -> dict[str, Any]:
        """The tokenizer.json of this tokenizer, as `save` writes it. With the engine tokenizers, `save` copies the loaded file."""
        return self._document if self._model is None else tokenizer_json.document_of(self._saved_model)

    @cached_property
    def _saved_model(self) -> Model:
        """The model in a form that tokenizer.json can express."""
        assert self._model is not None
        return tiktoken_file.with_own_ranks(self._model)

    def shared_in(self, folder: Path) -> Tokenizer:
        """Gives this tokenizer a cache of its own, for tasks: a pickle of it names the folder, where other processes load it."""
        shared = Tokenizer.__new__(Tokenizer)
        shared.__dict__.update(self.__dict__)
        for engine in ("_engine", "_allowing"):  # which hold the caches
            shared.__dict__.pop(engine, None)
        shared._reference = TokenizerReference(str(folder), self.digest, self._cache_mb_max)
        return shared

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[Any, ...]]:
        """Its TokenizerReference if it is `shared_in` a folder, else the tokenizer.json and `cache_mb_max`; no code. Raises
        PatternError for a regex that `save` refuses."""
        if self._reference is not None:
            return referred, (self._reference,)
        return unpickled, (self._file, self._cache_mb_max)

    @cached_property
    def _file(self) -> bytes:
        """The tokenizer.json that `save` writes."""
        return self._content if self._model is None else as_json(self.document)

    def __len__(self) -> int:
        return self.vocab_size

    def __eq__(self, other: object) -> bool:
        """Whether the other one has the same digest."""
        return isinstance(other, Tokenizer) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.vocab_size:,} tokens, engine {self.engine}, digest {self.digest[:16]}>"


# A process that gets the same tokenizer again and again, as with each task, loads it once.


@lru_cache(maxsize=2)
def unpickled(content: bytes, cache_mb_max: int) -> Tokenizer:
    """The tokenizer of a pickle."""
    return Tokenizer.of(read_json(content, "tokenizer.json"), "tokenizer.json", cache_mb_max)


@lru_cache(maxsize=4)
def referred(reference: TokenizerReference) -> Tokenizer:
    """The tokenizer that a pickle names. Raises TokenizerError if another one is there."""
    path, digest, cache_mb_max = reference
    tokenizer = Tokenizer.load(path, cache_mb_max=cache_mb_max)
    if tokenizer.digest != digest:
        raise TokenizerError(path, f"expected the tokenizer with the digest {digest}; found {tokenizer.digest}.")
    return tokenizer.shared_in(Path(path))


def _core_engine(model: Model, encoder: _core.Encoder, allow_special: bool, cache_mb_max: int) -> Engine:
    from tokenmill.tokenizer.core_engine import engine_of

    return engine_of(model, encoder, allow_special, min(cache_mb_max * 10**6, sys.maxsize))
