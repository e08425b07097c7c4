"""Makes a tokenizer's golden vectors from a fixed panel, hard cases and samples of its own corpus."""

from collections.abc import Mapping
from pathlib import Path

from tokenmill.artifacts.golden import (
    Encode,
    Golden,
    GoldenConversation,
    Vector,
    first_difference,
    read_golden,
    texts_found,
    tiktoken_engine,
    tokenizers_engine,
    write_golden,
)
from tokenmill.artifacts.golden_conversations import encoded_conversations
from tokenmill.artifacts.golden_texts import HARD, PANEL, around
from tokenmill.console import say
from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.tokenizer import Tokenizer

_N_CONVERSATIONS = 12


def make_golden(directory: Path, tokenizer: Tokenizer, samples: Mapping[str, str]) -> Golden:
    """The golden vectors of the tokenizer saved in `directory`, from the panel, the hard cases, its added tokens and `samples`.
    Texts that it cannot encode, such as one with a byte that has no token, are left out.

    Raises TokenizerError if the tokenizers library gives other ids. tiktoken merges by its own rule, which gives the same ids
    for nearly every vocabulary; if it gives others, the golden vectors record that.
    """
    texts = {f"panel/{name}": text for name, text in PANEL.items()}
    texts |= {f"hard/{name}": text for name, text in HARD.items()}
    texts |= {f"added/{i}": around(token) for i, token in enumerate(texts_found(tokenizer))} | dict(samples)
    vectors, refusals = [], []
    for name, text in texts.items():
        try:
            vectors.append(Vector(name=name, text=text, ids=tokenizer.encode(text)))
        except TokenizerError as error:
            refusals.append(f"{name}: {error}")
    if refusals:
        say(f"golden.json leaves out {len(refusals):,} texts that this tokenizer cannot encode, such as {refusals[0]}")
    engines: dict[str, str | None] = {tokenizer.engine: None}
    others: dict[str, Encode | str] = {
        "tokenizers": tokenizers_engine(directory),
        "tiktoken": tiktoken_engine(directory, tokenizer),
    }
    for name, engine in others.items():
        if isinstance(engine, str):
            engines[name] = engine
        elif different := first_difference(engine, vectors):
            if name == "tokenizers":
                raise TokenizerError(directory, f"tokenizers gives other ids than tokenmill: {different}")
            engines[name] = f"other ids for the text {different.split(':')[0]}"
        else:
            engines[name] = None
    chats = _conversations(directory, tokenizer)
    return Golden(tokenizer_digest=tokenizer.digest, engines=engines, conversations=chats, vectors=vectors)


def renew_conversations(directory: Path, tokenizer: Tokenizer) -> None:
    """Writes the conversations of golden.json again, after the tokenizer in a directory got another chat template."""
    golden = read_golden(directory)
    if golden is not None and golden.conversations != (chats := _conversations(directory, tokenizer)):
        write_golden(golden.model_copy(update={"conversations": chats}), directory)


def _conversations(directory: Path, tokenizer: Tokenizer) -> list[GoldenConversation]:
    """Without the samples, which are documents of others."""
    chats = encoded_conversations(directory, tokenizer, [*PANEL.values(), *HARD.values()], _N_CONVERSATIONS)
    if chats.why:
        say(f"golden.json has no conversations, since {chats.why}")
    return [
        GoldenConversation(name=f"conversation/{i}", messages=messages, ids=ids)
        for i, (messages, ids) in enumerate(chats.encoded)
    ]
