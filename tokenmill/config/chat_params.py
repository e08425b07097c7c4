"""The key encode.chat of params.yaml: how conversations become text, and which of their tokens are trained."""

from datetime import date
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from tokenmill.config.section import Section, key
from tokenmill.config.source_params import PlainValue, seen_by_dvc, share_or_number

MaskRule = Literal["assistant", "all", "last", "none"]  # which tokens of a conversation are trained
Turns = Literal["together", "each", "pair"]  # one sample of a conversation, one for each trained message, two answers
StopToken = Literal["trained", "next", "unchecked"]  # the special token at which a model stops
AnswerPart = Literal["reasoning", "content", "tool_calls", "end"]  # what an answer consists of

_OF_EVERY_RENDERING = ("messages", "tools", "documents", "add_generation_prompt")


def _is_variable(name: str) -> str:
    if name in _OF_EVERY_RENDERING:
        raise ValueError(
            f"found {name!r}; allowed: other names, since each conversation gives the template its own {name}"
        )
    return seen_by_dvc(name)


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_is_variable)]


def _no_date_of_yaml(value: object) -> object:
    if isinstance(value, date):
        raise ValueError(
            f'found {value}; allowed: "{value:%Y-%m-%d}" in quotation marks, since DVC reads no dates of YAML'
        )
    return value


def _is_day(text: str) -> str:
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise ValueError(f'found {text!r}; allowed: a day such as "2025-01-31"')


Day = Annotated[str, BeforeValidator(_no_date_of_yaml), AfterValidator(_is_day)]


class Train(Section):
    """The parts of an answer that are trained."""

    reasoning: bool = key(True, "whether the reasoning is trained", "false")
    content: bool = key(True, "whether the content is trained", "false")
    tool_calls: bool = key(True, "whether the calls of tools are trained", "false")
    end: bool = key(True, "whether the special token that ends the turn is trained", "false")

    @property
    def untrained(self) -> list[AnswerPart]:
        """The names of the other parts."""
        return [name for name in get_args(AnswerPart) if not getattr(self, name)]


class Chat(Section):
    """How conversations become text and which of their tokens are trained."""

    template: str = key(
        ...,
        "chatml, llama3, qwen3, mistral, gemma or deepseek; tokenizer, for the chat template of an imported one; or a file, which "
        "must be in the deps of train-vocab and encode in dvc.yaml, too",
        "chatml",
        min_length=1,
    )
    mask: MaskRule = key(
        "assistant",
        "which messages are trained: those of the assistant, all, the last one, or none for prompts, which end before an answer",
        "last",
    )
    turns: Turns = key(
        "together",
        "the samples that a conversation makes. together: one. each: one for each trained message, with those in front of it as "
        "the template shows them then. pair: both answers of source.pair",
        "each",
    )
    train: Train = key({}, "which parts of answers are trained", "{reasoning: false}")
    train_key: str | None = key(
        None,
        "one more key of messages that says false or 0 where they are not to be trained; null: none",
        "weight",
        min_length=1,
    )
    stop_token: StopToken = key(
        "trained",
        "trained: an error if no answer ends with a special token that is trained. next: the special token behind an answer is "
        "trained, too. unchecked: neither",
        "next",
    )
    variables: dict[VariableName, PlainValue] = key({}, "variables for the template", "{enable_thinking: false}")
    date: Day | None = key(
        None, "the day that a template writes as today's; null: it may not write one", '"2025-01-31"'
    )
    cut_max: Annotated[int | float, BeforeValidator(share_or_number)] = key(
        0.01,
        "more conversations than this that lose trained tokens to pack.length are an error: a share or a number",
        "100",
    )

    @field_validator("turns")
    @classmethod
    def _each_has_an_end(cls, turns: Turns, info: ValidationInfo) -> Turns:
        if turns == "each" and (mask := info.data.get("mask")) in ("all", "none"):
            raise ValueError(
                f"found 'each' with mask: {mask}; allowed: 'together', since a sample for each message trains that message alone"
            )
        if turns == "pair" and (mask := info.data.get("mask")) in ("all", "none"):
            raise ValueError(
                f"found 'pair' with mask: {mask}; allowed: with mask: last, since a pair trains its answers"
            )
        return turns

    @field_validator("train")
    @classmethod
    def _trains_parts_of_answers(cls, train: Train, info: ValidationInfo) -> Train:
        if train.untrained and (mask := info.data.get("mask")) in ("all", "none"):
            raise ValueError(
                f"found {train.untrained[0]}: false with mask: {mask}; allowed: with mask: assistant or last"
            )
        if len(train.untrained) == len(get_args(AnswerPart)):
            raise ValueError("found every part false; allowed: at least one that is true, or mask: none")
        return train
