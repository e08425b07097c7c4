"""Finds the assistant's messages in the text of a template without generation tags."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tokenmill.chat.answers import Stops
from tokenmill.chat.conversation import Conversation, named
from tokenmill.chat.origins import MESSAGES_MAX, Followed, SignedText, followed, has_signs, kept_words
from tokenmill.chat.template import RENDER_ERRORS, ChatTemplate
from tokenmill.errors import ChatError

_MARK_OR_EACH = (
    "Put {% generation %} and {% endgeneration %} around what an assistant writes in the template, or set "
    "encode.chat.turns: each."
)


class AnswerSpan(NamedTuple):
    """The characters `start` to `end` - 1 of a rendered text, which are an assistant's message. `message`: its number; -1 if it is
    not needed."""

    message: int
    start: int
    end: int


class AnswerLocator:
    """Finds messages in the text of one template. `stops`: its special tokens."""

    def __init__(self, template: ChatTemplate, stops: Stops) -> None:
        self._template, self._stops, self._kept = template, stops, kept_words(template.looked_for)

    def spans(
        self, shown: Conversation, whole: str, back: dict[int, str], needed: Sequence[int], index: int
    ) -> list[AnswerSpan]:
        """The needed messages in the text `whole`: by what it begins with, or if the template writes the first messages otherwise
        when they are alone, by the origin of characters. `back`: maps stand-ins to characters, for messages. Raises ChatError."""
        try:
            return [self._between(shown, whole, partial(_end_in, whole), i, index) for i in needed]
        except _NoBeginning:
            pass
        follow, signed = self.signed(shown, whole, index)
        try:
            spans = [self._between(follow.conversation, signed.text, signed.end_of, i, index) for i in needed]
        except _NoBeginning as error:
            raise self._no_beginning(shown, whole, back, error, index) from None
        for i, start, end in spans:
            if not signed.is_alone(i, start, end):
                raise ChatError(
                    index,
                    f"{named(shown.messages, i)}: the chat template has no {{% generation %}}, and writes a part of this message "
                    f"elsewhere, or of another message inside it, so what of it is learned is not known. {_MARK_OR_EACH}",
                )
        return spans

    def signed(self, shown: Conversation, whole: str, index: int) -> tuple[Followed, SignedText]:
        """The conversation with signs, and its rendering. `whole`: its rendering without. Raises ChatError if the template writes
        something else because of them."""
        words = "which text of the chat template is from which message is not known: "
        if len(shown.messages) > MESSAGES_MAX or has_signs(whole):
            raise ChatError(
                index,
                f"{words}the conversation has more than {MESSAGES_MAX:,} messages, or characters from U+100000 on. {_MARK_OR_EACH}",
            )
        follow = followed(shown, self._kept)
        try:
            text = self._template.marked(follow.conversation.messages, shown.tools, ("", ""))
        except RENDER_ERRORS as error:
            raise ChatError(
                index,
                f"{words}the template refuses other letters in the messages: {self._template.why(error)} {_MARK_OR_EACH}",
            ) from None
        signed = SignedText(text, follow.sources)
        if (position := signed.difference(whole)) is not None:
            place = self._template.place_at(shown.messages, shown.tools, position)
            raise ChatError(
                index,
                f"{words}with other letters in the messages, the template writes another text at character {position:,} ({place}). "
                f"{_MARK_OR_EACH}",
            )
        return follow, signed

    def behind(self, shown: Conversation, longer: Conversation, text: str, index: int) -> str:
        """What the template writes behind a conversation up to a special token, if one more message follows. Empty if it writes no
        such token there, or if where the conversation ends is not known. `longer`: the conversation with that message. `text`: the
        rendering without it."""
        try:
            if found := self._behind(shown, longer, text, index):
                return found
            answer = shown.messages[-1]
            if str(answer.get("content") or "").strip():
                return ""
            # The template may hide all of such an answer in a longer conversation. What follows it does not depend on its content.
            filled = Conversation([*shown.messages[:-1], {**answer, "content": "x"}], shown.tools)
            longer = Conversation([*filled.messages, longer.messages[-1]], longer.tools)
            return self._behind(filled, longer, self._template.marked(filled.messages, filled.tools, ("", "")), index)
        except (*RENDER_ERRORS, ChatError):
            return ""

    def _behind(self, shown: Conversation, longer: Conversation, text: str, index: int) -> str:
        end: int | None = len(text)
        whole = self._template.marked(longer.messages, longer.tools, ("", ""))
        if not whole.startswith(text):
            end = self.signed(longer, whole, index)[1].end_of(self.signed(shown, text, index)[1].text)
        return "" if end is None else whole[end : self._stops.end_of_next(whole, end)]

    def _between(
        self, conversation: Conversation, whole: str, end_in: Callable[[str], int | None], i: int, index: int
    ) -> AnswerSpan:
        """The part of message `i`: from the end of the conversation before it, with the prompt for an answer, to the end of the
        conversation with it. `end_in`: where the end of such a rendering is in `whole`. Raises _NoBeginning."""

        is_last = i + 1 == len(conversation.messages)
        end = len(whole) if is_last else end_in(self._begin(conversation, i + 1, False, index, i))
        if end is None:
            raise _NoBeginning(i + 1, i, "up to")
        prompted = self._begin(conversation, i, True, index, i)
        start = end_in(prompted)
        if start is None:
            before = self._begin(conversation, i, False, index, i)
            start = end_in(before)
            if start is None:
                raise _NoBeginning(i, i, "before")
            if prompted.startswith(before):
                start += self._stops.same_lines(prompted[len(before) :], whole[start:end])
        return AnswerSpan(i, start, end)

    def _no_beginning(
        self, shown: Conversation, whole: str, back: dict[int, str], unlike: "_NoBeginning", index: int
    ) -> ChatError:
        alone = self._begin(shown, unlike.n_messages, False, index, unlike.message)
        which = f"{unlike.which} {named(shown.messages, unlike.message)}"
        position = next(
            (i for i, (expected, written) in enumerate(zip(whole, alone, strict=False)) if expected != written),
            len(whole),
        )
        place = self._template.place_at(shown.messages, shown.tools, position)
        which, instead, there = (
            text.translate(back) for text in (which, alone[position : position + 30], whole[position : position + 30])
        )
        return ChatError(
            index,
            f"the chat template has no {{% generation %}}, and writes the conversation {which} differently on its own than in the "
            f"whole: at character {position:,} ({place}), {instead!r} instead of {there!r}. {_MARK_OR_EACH}",
        )

    def _begin(self, conversation: Conversation, n_messages: int, prompt: bool, index: int, i: int) -> str:
        """Renders the first messages on their own."""
        try:
            return self._template.marked(conversation.messages[:n_messages], conversation.tools, ("", ""), prompt)
        except RENDER_ERRORS as error:
            raise ChatError(
                index,
                f"{named(conversation.messages, i)}: the chat template has no {{% generation %}}, and refuses the "
                f"{n_messages} messages up to there on their own, so what of them is learned is not known: "
                f"{self._template.why(error)}",
            ) from None


def _end_in(whole: str, beginning: str) -> int | None:
    return len(beginning) if whole.startswith(beginning) else None


class _NoBeginning(Exception):
    """A conversation does not begin with its first `n_messages` as they are rendered alone, up to or before `message`."""

    def __init__(self, n_messages: int, message: int, which: str) -> None:
        super().__init__()
        self.n_messages, self.message, self.which = n_messages, message, which
