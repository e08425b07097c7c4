"""Encodes conversations as token ids with loss masks."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np
import pyarrow as pa

from tokenmill.chat import isolated
from tokenmill.chat.answers import AnswerCounts, added
from tokenmill.chat.locator import AnswerSpan
from tokenmill.chat.pairs import answers_of, joined, joined_texts, of_side, sides_of
from tokenmill.chat.prefixes import flags_by_prefixes
from tokenmill.chat.rendering import ChatSettings, Rendering, Way
from tokenmill.chat.samples import samples_of
from tokenmill.chat.segments import SegmentEncoder
from tokenmill.chat.stand_ins import strings_of
from tokenmill.chat.template import MEMORY_BYTES_MAX, ChatTemplate
from tokenmill.chat.token_ranges import Flags
from tokenmill.chat.turn_tokens import is_written, turn_tokens
from tokenmill.config.chat_params import AnswerPart
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch
from tokenmill.errors import ChatError, TemplateError
from tokenmill.tokenizer.tokenizer import Tokenizer


class EncodedChat(NamedTuple):
    """Encoded conversations.

    `input_ids`: large_list<uint32>, one list a conversation, or a pair. `loss_mask`: large_list<int8> of the same lengths, 1 where
    a token is to be learned, else 0. `texts`: large_string, the rendered texts; the ids decode to them, or to them normalized, for
    a tokenizer that normalizes. `counts`: counts of their answers.
    """

    input_ids: pa.LargeListArray
    loss_mask: pa.LargeListArray
    texts: pa.LargeStringArray
    counts: AnswerCounts


class ChatEncoder:
    """Encodes conversations by a chat template. Threads may share one.

    What the template itself writes of special tokens becomes their ids; the same text in a message, or in any other string of the
    conversation, stays text. So do added tokens that mark turns without being special (`turn_tokens`).

    The limit: a template that edits a message, as by `replace` or `lower`, can make a special token of text that is none. There is
    no cheap exact check: every conversation, not only the few suspects, would have to be rendered a second time with a stand-in for
    each character that a filter could change or join, and a template that tests such characters would be refused.
    """

    def __init__(self, tokenizer: Tokenizer, settings: ChatSettings, place: str) -> None:
        """`place`: where the template is from, for messages.

        Raises TemplateError for a template that does not compile, uses the text of such a token that the variables lack or the
        tokenizer does not have as one, or cannot be used with this tokenizer.
        """
        self._made_of = tokenizer, msgspec.json.encode(settings), place
        self._settings, self._mask, variables = settings, settings.mask, settings.variables
        texts = [one for one in (settings.template, settings.tool_use_template) if one is not None]
        compiled = {text: ChatTemplate(text, variables, place, settings.date) for text in texts}
        for name in dict.fromkeys(name for one in compiled.values() for name in one.token_names):
            if variables[name] and len(tokenizer.encode(str(variables[name]), special="allow")) != 1:
                raise TemplateError(
                    f"{place}: {name}",
                    "expected the text of a token, such as "
                    f"{', '.join(list(tokenizer.special_tokens)[:10]) or '(none is special)'}; found "
                    f"{variables[name]!r:.60}.",
                    "Give the right text in the template's variables.",
                )
        if marks := turn_tokens(tokenizer.added_tokens, "".join(texts) + strings_of(variables)):
            tokenizer = tokenizer.with_special(marks)
        if settings.turns != "together":
            settings = msgspec.structs.replace(settings, mask="last")  # what is rendered are samples
        self._way, self._way_shown = (
            msgspec.json.encode(Way(settings, list(tokenizer.special_tokens), place, is_shown))
            for is_shown in (False, True)
        )
        self._encoder = SegmentEncoder(tokenizer, place)
        self._memory_bytes = MEMORY_BYTES_MAX
        written = "".join(texts) + strings_of(
            {name: value for name, value in variables.items() if name in "".join(texts)}
        )
        self.writes_special: bool = any(is_written(text, written) for text in tokenizer.special_tokens)
        """Whether the template seems to write special tokens."""
        self.asks_spans: bool = settings.mask != "none"
        """Whether masks may depend on the characters that tokens cover."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments; another process makes the encoder from them once."""
        return _made_once, self._made_of

    def hold_to(self, limits: Limits) -> None:
        """Gives a process that renders no more memory than a worker with these limits has for it."""
        self._memory_bytes = min(MEMORY_BYTES_MAX, limits.renderer_bytes_max or MEMORY_BYTES_MAX)

    def samples(self, batch: Batch) -> Iterator[Batch]:
        """The samples of a batch of conversations, which `encode_batch` takes: with `turns: each` those of `samples_of`, else the
        batch itself. Raises ChatError, with the conversation's number in `batch`, before the first sample."""
        if self._settings.turns != "each" or batch.messages is None:
            return iter([batch])
        return samples_of(batch, self._mask, self._settings.train_key, self._settings.train_next)

    def ask(self, conversations: pa.LargeStringArray, bytes_max: int | None = None) -> isolated.Request:
        """Lets a process render conversations or their samples, given as canonical JSON, for `encode`. With `turns: pair`, each is
        a pair. `bytes_max`: the most bytes that the template may make of one; None: no limit. Raises ChatError, with the pair's
        number, for one that is no pair."""
        if self._settings.turns == "pair":
            return isolated.Request(self._way, sides_of(conversations), 2, bytes_max, self._memory_bytes)
        return isolated.Request(self._way, conversations, 1, bytes_max, self._memory_bytes)

    def encode(self, request: isolated.Request) -> Iterator[EncodedChat]:
        """Encodes what was asked for, in the calling thread: usually all at once, and less at a time where the template makes very
        much of it. The ids, mask and text of a pair are those of the conversation with the chosen answer, and behind them those
        with the rejected one.

        Raises ChatError, with the conversation's number, if the template refuses it, it is not canonical JSON, a character has no
        token, or its mask cannot be determined.
        """
        n_before = 0
        for encoded in self._sides(request):
            if self._settings.turns == "pair":
                with _numbered_from(n_before):
                    mask = answers_of(encoded.input_ids, encoded.loss_mask)
                encoded = EncodedChat(
                    joined(encoded.input_ids), joined(mask), joined_texts(encoded.texts), encoded.counts
                )
            n_before += len(encoded.texts)
            yield encoded

    def _sides(self, request: isolated.Request) -> Iterator[EncodedChat]:
        """What was asked for, encoded; of pairs each side by itself."""
        n_before = 0
        try:
            for renderings in request.parts():
                with _numbered_from(n_before):
                    found = self._encoded(renderings)
                n_before += len(renderings)
                del renderings
                yield found
        except ChatError as error:
            raise (of_side(error) if self._settings.turns == "pair" else error) from None

    def encode_batch(self, conversations: pa.LargeStringArray) -> EncodedChat:
        """Renders and encodes conversations, as `ask` and `encode` do, all at once."""
        with closing(self.ask(conversations)) as request:
            found = list(self.encode(request))
        input_ids, loss_mask, texts = (pa.concat_arrays(some) for some in list(zip(*found, strict=True))[:3])
        return EncodedChat(input_ids, loss_mask, texts, added(one.counts for one in found))

    def answer_parts(self, conversation: bytes) -> Flags:
        """Gives the part of an answer that each id of a conversation's `encode_batch` is, for people to see: 1 + its place in
        AnswerPart. It is 0 for other ids, and for all ids where the template does not tell its parts. `conversation`: canonical
        JSON in UTF-8. Raises ChatError."""
        one = pa.array([conversation], pa.large_string())
        shown = isolated.Request(self._way_shown, sides_of(one) if self._settings.turns == "pair" else one)
        with closing(shown):
            renderings = [part._replace(parts=[]) for part in chain.from_iterable(shown.parts())]
        names: tuple[AnswerPart, ...] = get_args(AnswerPart)
        parts: Flags = np.zeros(1, np.int8)
        for place, name in reversed([*enumerate(names, 1)]):  # a token of two parts is of the first
            flags = self._encoder.encode([_as_marked(rendering, {*names} - {name}) for rendering in renderings]).flags
            parts = np.where(flags, np.int8(place), parts)
        return parts

    def _encoded(self, renderings: Sequence[Rendering]) -> EncodedChat:
        encoded = self._encoder.encode([_as_marked(rendering, self._settings.untrained) for rendering in renderings])
        flags = encoded.flags
        if any(rendering.by_prefixes for rendering in renderings):
            some = [rendering if rendering.by_prefixes else rendering._replace(parts=[]) for rendering in renderings]
            inside = flags_by_prefixes(self._encoder, some, encoded)
            is_inside = np.repeat([rendering.by_prefixes for rendering in renderings], np.diff(encoded.offsets))
            flags = np.where(is_inside, flags & inside if self._settings.untrained else inside, flags)
        if self._mask == "all":
            flags = 1 - flags
        offsets = pa.array(encoded.offsets, pa.int64())
        return EncodedChat(
            pa.LargeListArray.from_arrays(offsets, pa.array(encoded.ids, pa.uint32())),
            pa.LargeListArray.from_arrays(offsets, pa.array(flags, pa.int8())),
            pa.array([rendering.text for rendering in renderings], pa.large_string()),
            added(rendering.counts for rendering in renderings),
        )


@contextmanager
def _numbered_from(n_before: int) -> Iterator[None]:
    """Adds the number of conversations before those of the block to the number in its errors."""
    try:
        yield
    except ChatError as error:
        error.index += n_before
        raise


@lru_cache(maxsize=4)
def _made_once(tokenizer: Tokenizer, settings: bytes, place: str) -> ChatEncoder:
    return ChatEncoder(tokenizer, msgspec.json.decode(settings, type=ChatSettings), place)


def _as_marked(rendering: Rendering, untrained: Container[AnswerPart]) -> Rendering:
    """The rendering with those parts that its characters tell: stretches of answers but for the untrained ones, or else answers,
    unless prefixes tell."""
    if rendering.stretches is not None:
        return rendering._replace(
            parts=[AnswerSpan(-1, s.start, s.end) for s in rendering.stretches if s.part not in untrained]
        )
    return rendering._replace(parts=[]) if rendering.by_prefixes else rendering
