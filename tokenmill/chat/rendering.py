"""Renders conversations for an encoder: the text, and its parts for the mask."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill.chat.answer_parts import AnswerCutter, Stretch
from tokenmill.chat.answers import FIRST, LAST, MIDDLE, AnswerCounts, Side, Stops, answer_of, without
from tokenmill.chat.conversation import Conversation, chosen, named
from tokenmill.chat.locator import AnswerLocator, AnswerSpan
from tokenmill.chat.stand_ins import Guard, Guarded, strings_of
from tokenmill.chat.template import RENDER_ERRORS, ChatTemplate, Regions, regions
from tokenmill.config.chat_params import AnswerPart, MaskRule, Turns
from tokenmill.errors import ChatError

_RENDERED_OF_NOTHING, _RENDERED_OF_A_CHARACTER = 1_000_000, 16
"""The most characters that a template may write: a fixed number, and a number per character of the conversation's JSON."""

_WORDS_OF: Mapping[Side, str] = {"content": "no word of its content", "tool_calls": "nothing of a tool call"}
_TAKES_TAGS = (
    "writes its content in part, because it takes text before a tag </think> for reasoning, and leaves out {!r:.60}. If that is "
    "reasoning, see that the content begins with <think>, or give it the key reasoning_content; if not, take another template, or "
    "give the message weight 0."
)

_PREFIX_CHARACTERS_MAX = 1_000_000_000
"""The limit of a conversation's characters times its trained messages, without generation tags. 1,000 messages of 280,000
characters take 18 s."""


class Rendering(NamedTuple):
    """A rendered conversation. `guarded`: the text with stand-ins; None if it needs none. `parts`: the trained parts, or with
    `mask: all` the excluded ones. `by_prefixes`: whether parts come from prefixes, because the template has no generation tags.
    `counts`: counts of its answers. `stretches`: what of an answer the characters of the parts are; None: unknown, or not asked."""

    text: str
    guarded: str | None
    parts: list[AnswerSpan]
    by_prefixes: bool = False
    counts: AnswerCounts = AnswerCounts()
    stretches: list[Stretch] | None = None


class ChatSettings(msgspec.Struct, frozen=True):
    """What decides how conversations become ids and masks.

    `template`: the text of the chat template; None: each conversation must have tools. `mask`: what is learned: the assistant's
    messages, all tokens, the last of the assistant's messages, or nothing of a conversation that the template ends with the
    beginning of an answer. `variables`: what the template is given beside the conversation, with the texts of tokens: bos_token,
    eos_token, pad_token and so on. `tool_use_template`: the text of the one for conversations with tools; None: they have no other.
    `train_key`: a key of messages that says whether they are to be learned, beside those of `conversation.chosen`. `train_next`:
    the special token behind an answer is learned, too, if the answer does not end with one.
    `turns`: whether a conversation is one sample, or one for each message that is learned. `untrained`: parts of answers that are
    not learned. `date`: the day that the template writes by `strftime_now`, as an ISO date.
    """

    template: str | None
    mask: MaskRule
    variables: dict[str, Any]
    tool_use_template: str | None = None
    train_key: str | None = None
    train_next: bool = False
    turns: Turns = "together"
    untrained: list[AnswerPart] = []
    date: str | None = None


class Way(NamedTuple):
    """What rendering needs. `special`: the texts of special tokens. `place`: where the template is from, for messages. `is_shown`:
    whether people will see the parts of answers, so that stretches are wanted even where they decide no mask."""

    settings: ChatSettings
    special: list[str]
    place: str
    is_shown: bool = False


class Renderer:
    """Renders conversations by one template. `source`: its text."""

    def __init__(self, template: ChatTemplate, source: str, way: Way) -> None:
        settings = way.settings
        self._template, self._mask = template, settings.mask
        self._is_prompt = settings.mask == "none"  # the template then writes the beginning of an answer
        self._train_key, self._train_next = settings.train_key, settings.train_next
        self._stops = Stops([*way.special, str(settings.variables.get("eos_token") or "")])
        self._locator = AnswerLocator(template, self._stops)
        self._untrained, self._is_shown, self._cutter = settings.untrained, way.is_shown, AnswerCutter(way.special)
        self._guard = Guard(way.special, template.words, source + strings_of(settings.variables))

    def suspects(self, conversations: pa.LargeStringArray) -> set[int]:
        """The indexes of conversations that may contain the text of a special token."""
        return set(self._guard.suspects(conversations))

    def rendering(self, conversation: Conversation, text: str, index: int, suspect: bool) -> Rendering:
        """Renders a conversation. `text`: its canonical JSON. `suspect`: whether it is one of `suspects`. Raises ChatError."""
        most = _RENDERED_OF_NOTHING + _RENDERED_OF_A_CHARACTER * len(text)
        marks = self._guard.marks_for(text) if suspect else self._guard.marks
        plain = self._rendered(conversation, marks, most, index)
        guarded = self._guard.guarded(conversation, text) if suspect else None
        if guarded is not None:
            with_stand_ins = self._rendered(guarded.conversation, marks, most, index)
            if (with_stand_ins.text.translate(guarded.back), with_stand_ins.generated) != plain:
                raise _depends(guarded, conversation, index)
            shown, rendered = guarded.conversation, with_stand_ins
        else:
            shown, rendered = conversation, plain
        back = {} if guarded is None else guarded.back
        assistants, needed = chosen(conversation.messages, self._mask, self._train_key, index)
        if self._template.has_generation:
            parts = self._generated(conversation, rendered, assistants, needed, index)
        else:
            if len(needed) * len(plain.text) > _PREFIX_CHARACTERS_MAX:
                raise ChatError(
                    index,
                    f"the chat template has no {{% generation %}}, so the conversation is rendered again for each message that is "
                    f"learned: {len(needed):,} times {len(plain.text):,} characters; allowed are {_PREFIX_CHARACTERS_MAX:,}. Put "
                    "{% generation %} and {% endgeneration %} around what an assistant writes in the template.",
                )
            parts = self._locator.spans(shown, rendered.text, back, needed, index)
        learned = needed if self._mask != "all" else [i for i in assistants if i not in needed]
        places = {part.message: (part.start, part.end) for part in parts if self._mask != "all"}
        if len(rendered.generated) == len(assistants):
            places = dict(zip(assistants, rendered.generated, strict=True))
        n_without_reasoning = self._check_written(conversation, learned, places, plain.text, most, index)
        parts = [part for part in parts if part.start < part.end]
        n_answers, n_without_stop, behind = 0, 0, ""
        if self._mask != "all":
            if not self._template.has_generation:
                ends_of = self._stops.end_without_space
                parts = [part._replace(end=ends_of(rendered.text, part.start, part.end)) for part in parts]
            if self._train_next:
                parts = [self._through_next(part, rendered.text) for part in parts]
                if behind := self._marker_behind(shown, rendered.text, parts, index):
                    parts[-1] = parts[-1]._replace(end=len(rendered.text) + len(behind))
            starts = {part.start for part in parts}
            ends = [part for part in parts if part.end not in starts]  # adjacent parts are one answer
            n_answers = len(ends)
            n_without_stop = sum(not self._stops.end((rendered.text + behind)[part.start : part.end]) for part in ends)
        return Rendering(
            plain.text + behind,
            None if guarded is None else rendered.text + behind,
            parts,
            not self._template.has_generation,
            AnswerCounts(n_answers, n_without_stop, 0 if "reasoning" in self._untrained else n_without_reasoning),
            self._stretches(shown, rendered.text, parts, index),
        )

    def _stretches(self, shown: Conversation, text: str, parts: list[AnswerSpan], index: int) -> list[Stretch] | None:
        """What the characters of answers are. Raises ChatError if they decide the mask and the template does not tell them."""
        if self._mask == "all" or not (self._untrained or self._is_shown):
            return None
        if not parts:
            return []
        try:
            signed = self._locator.signed(shown, text, index)[1]
        except ChatError:
            if self._untrained:
                raise
            return None
        return [
            one for _, start, end in parts for one in self._cutter.stretches(start, end, signed, text, shown.messages)
        ]

    def _rendered(self, conversation: Conversation, marks: tuple[str, str], most: int, index: int) -> Regions:
        try:
            marked = self._template.marked(conversation.messages, conversation.tools, marks, self._is_prompt, most)
            rendered = regions(marked, marks)
            if self._template.keeps_generation and rendered.text != self._template.marked(
                conversation.messages, conversation.tools, ("", ""), self._is_prompt, most
            ):
                raise ValueError("it keeps a generated region in a variable or a macro, and changes what is in it")
            return rendered
        except RENDER_ERRORS as error:
            raise ChatError(index, f"the chat template refuses it: {self._template.why(error)}") from None

    def _generated(
        self, conversation: Conversation, rendered: Regions, assistants: list[int], needed: list[int], index: int
    ) -> list[AnswerSpan]:
        """The marked regions of the needed messages."""
        if self._mask not in ("all", "none") and needed == assistants:
            return [AnswerSpan(-1, start, end) for start, end in rendered.generated]
        if not needed:
            return []
        if len(rendered.generated) != len(assistants):
            raise ChatError(
                index,
                f"the chat template marks {len(rendered.generated)} generated regions for {len(assistants)} messages of the "
                f"assistant, so which is {named(conversation.messages, needed[0])} is not known. Put one {{% generation %}} around "
                "each message of the assistant, or use mask: assistant without weights.",
            )
        regions_of = dict(zip(assistants, rendered.generated, strict=True))
        return [AnswerSpan(i, *regions_of[i]) for i in needed]

    def _through_next(self, part: AnswerSpan, text: str) -> AnswerSpan:
        """Extends the part by the special token that follows, unless it ends with one."""
        if self._stops.end(text[part.start : part.end]):
            return part
        return part._replace(end=self._stops.end_of_next(text, part.end))

    def _marker_behind(self, shown: Conversation, text: str, parts: Sequence[AnswerSpan], index: int) -> str:
        """What the template writes behind the answer of a sample for the message after it, up to a special token; empty if the
        answer ends with one, or if there is none."""
        if shown.next is None or not parts or text[parts[-1].end :].strip() or self._stops.end(text[: parts[-1].end]):
            return ""
        longer = Conversation([*shown.messages, shown.next], shown.tools)
        return self._locator.behind(shown, longer, text, index)

    def _check_written(
        self,
        conversation: Conversation,
        learned: Sequence[int],
        places: Mapping[int, tuple[int, int]],
        text: str,
        most: int,
        index: int,
    ) -> int:
        """Raises ChatError if the template leaves out the content or tool calls of a trained answer. Returns the number of answers
        that only lose their reasoning. `places`: where messages are in the text."""
        unseen: dict[Side, list[int]] = {"content": [], "tool_calls": [], "reasoning": []}
        answers = {i: answer_of(conversation.messages[i]) for i in learned}
        for i, answer in answers.items():
            for side in answer.unseen(text[slice(*places[i])] if i in places else None, text):
                unseen[side].append(i)
        left_out = {
            side: self._left_out(
                conversation, side, messages, side != "tool_calls" or places.keys() >= set(messages), text, most
            )
            for side, messages in unseen.items()
            if messages
        }
        for side in ("content", "tool_calls"):
            for i, part in left_out.get(side, {}).items():
                left_text = answers[i].shown(side, part)
                what = f"writes {_WORDS_OF[side]}, {left_text!r:.60}. See that it writes message.{side}, without a mistyped "
                what += "name, or take another template."
                if side == "content" and left_text.strip() != answers[i].content.strip():
                    what = _TAKES_TAGS.format(left_text)
                raise ChatError(index, f"{named(conversation.messages, i)}: the chat template {what}")
        lost = left_out.get("reasoning", {})
        for i in lost:
            if not answers[i].content.strip() and not answers[i].calls:
                raise ChatError(
                    index,
                    f"{named(conversation.messages, i)}: it has nothing but reasoning, and the chat template does not write that: "
                    f"{answers[i].reasoning!r:.60}. Take a template that writes it, remove the message, or give it weight 0.",
                )
        return len(lost)

    def _left_out(
        self, conversation: Conversation, side: Side, candidates: list[int], each: bool, text: str, most: int
    ) -> dict[int, slice]:
        """The messages among `candidates` of which the template leaves out pieces of a side, and which: removing these does not
        change the rendered text. `each`: whether to try each message on its own if leaving out all of them changes the text."""

        def is_alike(without_piece: Mapping[int, dict[str, Any]]) -> bool:
            messages = [without_piece.get(i, message) for i, message in enumerate(conversation.messages)]
            try:
                return self._template.marked(messages, conversation.tools, ("", ""), False, most) == text
            except RENDER_ERRORS:
                return False

        left_out: dict[int, slice] = {}
        compared: dict[int, list[dict[str, Any]]] = {i: [conversation.messages[i]] for i in candidates}
        for part in (LAST, FIRST, MIDDLE):
            tried = {i: without(conversation.messages[i], side, part) for i in candidates if i not in left_out}
            tried = {i: message for i, message in tried.items() if message not in compared[i]}
            if tried and is_alike(tried):
                left_out |= dict.fromkeys(tried, part)
            elif each and len(tried) > 1:
                left_out |= {i: part for i, message in tried.items() if is_alike({i: message})}
            for i, message in tried.items():
                compared[i].append(message)
        return left_out


def _depends(guarded: Guarded, conversation: Conversation, index: int) -> ChatError:
    place = "tools" if guarded.first is None else named(conversation.messages, guarded.first)
    found = ", ".join(sorted(guarded.back.values()))
    return ChatError(
        index,
        f"{place}: a string has the text of a special token, or begins or ends with a part of one ({found}), and the chat template "
        "writes something else because of it. Remove that text, or take a template that does not look into messages.",
    )
