"""What every engine of a tokenizer can do, and the form in which it takes texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tokenmill import _core

if TYPE_CHECKING:
    from tokenmill.arrow_texts import Texts


class Engine(Protocol):
    """Runs a tokenizer with one policy of special tokens in text."""

    def encode(self, text: str) -> list[int]: ...
    def encode_batch(self, texts: Any, threads: int, begin_id: int | None = None, end_id: int | None = None) -> Any: ...
    def count_tokens(self, texts: Any, threads: int) -> Any: ...
    def decode(self, ids: Any) -> str: ...
    def decode_bytes(self, ids: Any) -> bytes: ...
    def decode_batch(self, ids: Any, threads: int) -> Any: ...


def texts_for(engine: Engine, texts: Texts) -> Any:
    """The texts in the form that the engine takes; only the core takes them without a copy."""
    from tokenmill.arrow_texts import for_core, one_array
    from tokenmill.tokenizer.core_engine import PreparedCore

    return for_core(texts) if isinstance(engine, _core.Encoder | PreparedCore) else one_array(texts)
