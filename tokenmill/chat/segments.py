"""Encodes rendered conversations: the special tokens of the template as ids, the same texts in messages as text."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokenmill.chat.rendering import Rendering
from tokenmill.chat.token_ranges import CharacterRange, Flags, covered
from tokenmill.errors import ChatError, PatternError, TemplateError, TokenizerError
from tokenmill.tokenizer.added_tokens import Finder
from tokenmill.tokenizer.tokenizer import Tokenizer


class TokenStretch(NamedTuple):
    """The characters `start` to `end` - 1 of a rendered text: a special token, or text between two, with `id` None."""

    start: int
    end: int
    id: int | None


class EncodedTexts(NamedTuple):
    """The concatenated ids of conversations. `flags`: 1 for ids in the rendering's parts, else 0. `offsets`: conversation i has the
    ids `offsets[i]` to `offsets[i + 1]` - 1."""

    ids: np.ndarray[Any, np.dtype[np.uint32]]
    flags: Flags
    offsets: np.ndarray[Any, np.dtype[np.int64]]


class SegmentEncoder:
    """Encodes renderings with one tokenizer.

    The template's special tokens are those that are also in the text with stand-ins. If a text has no others, it is encoded whole,
    with special tokens allowed. Otherwise it is cut at the template's tokens, and the rest is encoded as text.
    """

    def __init__(self, tokenizer: Tokenizer, place: str) -> None:
        """Raises TemplateError, whose message begins with `place`, if the tokenizer cannot tell special tokens from text."""
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens
        is_normalized = _normalizes(tokenizer)
        for token in added:
            if token.special and (token.single_word or (token.normalized and is_normalized)):
                flag = "single_word" if token.single_word else "normalized"
                raise TemplateError(
                    place,
                    f"the tokenizer's token {token.text!r:.60} has the flag {flag}, so where the token is found depends on the "
                    "text around it, or text that only looks like it becomes the token. A chat template needs tokens without this "
                    "flag.",
                    "Set the flag to false in tokenizer.json.",
                )
        early, late = ([token for token in added if token.normalized is phase] for phase in (False, True))
        self._looks_beside = any(token.single_word for token in added)
        self._special_ids = np.array([token.id for token in added if token.special], np.uint32)
        self._early, self._late = (Finder(some, ()) if some else None for some in (early, late))

    def encode(self, renderings: Sequence[Rendering], owners: Sequence[int] | None = None) -> EncodedTexts:
        """Encodes renderings as ids and flags. `owners`: the number of each rendering's conversation, for messages. Raises
        ChatError."""
        owners = range(len(renderings)) if owners is None else owners
        is_whole = [rendering.guarded is None or self._all_are_of_the_template(rendering) for rendering in renderings]
        whole = [one for one, is_one in zip(renderings, is_whole, strict=True) if is_one]
        whole_owners = [owner for owner, is_one in zip(owners, is_whole, strict=True) if is_one]
        ranges = [CharacterRange(i, start, end) for i, one in enumerate(whole) for _, start, end in one.parts]
        ids, flags, offsets = self._run([one.text for one in whole], ranges, whole_owners, "allow")
        if len(whole) == len(renderings):
            return EncodedTexts(ids, flags, offsets)
        at_whole = iter(range(len(whole)))
        at_cut = self._cut([(renderings[i], owners[i]) for i, is_one in enumerate(is_whole) if not is_one])
        encoded: list[tuple[Any, Any]] = []
        for is_one in is_whole:
            if is_one:
                i = next(at_whole)
                encoded.append((ids[offsets[i] : offsets[i + 1]], flags[offsets[i] : offsets[i + 1]]))
            else:
                encoded.append(next(at_cut))
        lengths = [len(one) for one, _ in encoded]
        return EncodedTexts(
            np.concatenate([one for one, _ in encoded]),
            np.concatenate([one for _, one in encoded]),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        )

    def decode(self, ids: Any) -> str:
        """The text of ids. Parts of characters become U+FFFD."""
        return self._tokenizer.decode_bytes(ids).decode(errors="replace")

    def special_places(self, rendering: Rendering, ids: Any) -> tuple[list[TokenStretch], list[int]]:
        """The template's special tokens in a rendering, and the positions of their ids in the rendering's `ids`.

        Two empty lists if the positions are ambiguous: text also has the id of a special token (as characters outside the
        vocabulary do), or an added token matches depending on its surroundings."""
        special = [segment for segment in self._segments(rendering.guarded or rendering.text) if segment.id is not None]
        (places,) = np.nonzero(np.isin(ids, self._special_ids))
        if self._looks_beside or ids[places].tolist() != [one.id for one in special]:
            return [], []
        return special, places.tolist()

    def _all_are_of_the_template(self, rendering: Rendering) -> bool:
        return self._segments(rendering.text) == self._segments(rendering.guarded or "")

    def _cut(self, renderings: Sequence[tuple[Rendering, int]]) -> Iterator[tuple[Any, Any]]:
        """The ids and flags of each rendering that has stand-ins."""
        texts: list[str] = []
        ranges: list[CharacterRange] = []
        text_owners: list[int] = []
        cuts = [self._segments(rendering.guarded or "") for rendering, _ in renderings]
        for (rendering, owner), segments in zip(renderings, cuts, strict=True):
            for segment in segments:
                if segment.id is None:
                    for _, start, end in rendering.parts:
                        start, end = max(start, segment.start), min(end, segment.end)
                        if start < end:
                            ranges.append(CharacterRange(len(texts), start - segment.start, end - segment.start))
                    texts.append(rendering.text[segment.start : segment.end])
                    text_owners.append(owner)
            if self._tokenizer.model is None:
                self._check_independent(rendering, segments, owner)
        ids, flags, offsets = self._run(texts, ranges, text_owners, "as_text")
        i_text = 0
        for (rendering, _), segments in zip(renderings, cuts, strict=True):
            some_ids, some_flags = [np.empty(0, np.uint32)], [np.empty(0, np.int8)]
            for segment in segments:
                if segment.id is None:
                    some_ids.append(ids[offsets[i_text] : offsets[i_text + 1]])
                    some_flags.append(flags[offsets[i_text] : offsets[i_text + 1]])
                    i_text += 1
                else:
                    inside = any(start < segment.end and end > segment.start for _, start, end in rendering.parts)
                    some_ids.append(np.array([segment.id], np.uint32))
                    some_flags.append(np.array([inside], np.int8))
            yield np.concatenate(some_ids), np.concatenate(some_flags)

    def _run(
        self, texts: list[str], ranges: list[CharacterRange], owners: Sequence[int], special: Any
    ) -> tuple[Any, Any, Any]:
        array = pa.array(texts, pa.large_string())
        try:
            lists = self._tokenizer.encode_batch(array, threads=1, special=special)
        except (TokenizerError, PatternError):
            for text, owner in zip(texts, owners, strict=True):
                try:
                    self._tokenizer.encode(text, special=special)
                except (TokenizerError, PatternError) as error:
                    raise ChatError(owner, f"it cannot be encoded: {error}") from None
            raise
        return (
            lists.values.to_numpy(),
            covered(self._tokenizer, texts, lists, ranges, special),
            lists.offsets.to_numpy(),
        )

    def _segments(self, guarded: str) -> list[TokenStretch]:
        """Cuts the text with stand-ins at its special tokens as the tokenizer finds them: first those matched before normalizing,
        then the others in the gaps."""
        spans = list(self._early.spans(guarded)) if self._early else []
        if self._late:
            gaps, end = [], 0
            for start, stop, _ in [*spans, (len(guarded), len(guarded), None)]:
                gaps.append((end, start))
                end = stop
            for begin, stop in gaps:
                spans += [(begin + a, begin + b, token) for a, b, token in self._late.spans(guarded[begin:stop])]
            spans.sort(key=lambda span: span[0])
        segments, end = [], 0
        for start, stop, token in [*spans, (len(guarded), len(guarded), None)]:
            if token is not None and not token.special:
                continue
            if end < start:
                segments.append(TokenStretch(end, start, None))
            if token is not None:
                segments.append(TokenStretch(start, stop, token.id))
            end = stop
        return segments

    def _check_independent(self, rendering: Rendering, segments: list[TokenStretch], owner: int) -> None:
        """Raises ChatError if the tokenizers library encodes text between special tokens differently than alone. Tests the text
        with letters in place of stand-ins."""
        text = "".join(
            "x" if one != other else one for one, other in zip(rendering.text, rendering.guarded or "", strict=True)
        )
        apart: list[int] = []
        for segment in segments:
            alone = (
                [segment.id] if segment.id is not None else self._tokenizer.encode(text[segment.start : segment.end])
            )
            apart += alone
        if apart != self._tokenizer.encode(text, special="allow"):
            raise ChatError(
                owner,
                "a message has the text of a special token, or a part of one at its beginning or end, and this tokenizer encodes "
                "text behind a special token differently than alone, so that text cannot be kept text. Remove it from the message.",
            )


def _normalizes(tokenizer: Tokenizer) -> bool:
    model = tokenizer.model
    return model.nfc if model is not None else tokenizer.document.get("normalizer") is not None
