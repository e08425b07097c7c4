"""encode, for conversations: the chat template that params.yaml asks for, and the limits that its loss masks must keep."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill.chat.answers import AnswerCounts
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.named import TURN_TOKENS
from tokenmill.chat.rendering import ChatSettings
from tokenmill.chat.shipped import templates_of
from tokenmill.config.chat_params import Chat, StopToken
from tokenmill.config.encode_params import Pack
from tokenmill.console import say
from tokenmill.dataset.document_index import read_unit_index
from tokenmill.dataset.entries import ChatEntry
from tokenmill.dataset.manifest import Manifest
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.layout import TOKENIZER_DIRECTORY
from tokenmill.quantities import number_of
from tokenmill.tokenizer.chat_files import DEFAULT, TOOL_USE, special_names
from tokenmill.tokenizer.tokenizer import Tokenizer

_N_SHOWN = 3
_N_ANSWERS_SURE = 1000


def chat_entry(root: Path, params: Chat, tokenizer: Path | None = None) -> ChatEntry:
    """The manifest's entry of the chat template and its variables: those of params.yaml, and the special tokens that the
    tokenizer's config names, like bos_token. Raises ParamsError if there is no such template.

    `root`: the project's folder. `tokenizer`: the tokenizer's folder; None: data/tokenizer."""
    directory = tokenizer or root / TOKENIZER_DIRECTORY
    names = special_names(directory)
    templates = templates_of(root, params.template, directory)
    return ChatEntry(
        template=templates.get(DEFAULT),
        tool_use_template=templates.get(TOOL_USE),
        template_name=params.template,
        mask=params.mask,
        variables={**names, **params.variables},
        date=params.date,
        train_key=params.train_key,
        train_next=params.stop_token == "next",
        turns=params.turns,
        untrained=params.train.untrained,
        n_trained=0,
    )


def chat_encoder(tokenizer: Tokenizer, entry: ChatEntry) -> ChatEncoder:
    """The encoder of conversations for a tokenizer. Raises ParamsError for a shipped template that is for other tokenizers, and
    TemplateError."""
    known = {token.text for token in tokenizer.added_tokens}
    lacking = [one for one in TURN_TOKENS.get(entry.template_name, ()) if one not in known]
    if lacking:
        raise ParamsError(
            "encode.chat.template",
            f"{entry.template_name} marks turns with {', '.join(lacking)}, which are not added tokens of this "
            "tokenizer, so they would become plain text.",
            "Add them to train_vocab.special_tokens, or take the template of the tokenizer.",
        )
    return ChatEncoder(tokenizer, ChatSettings(**entry.encoding), f"encode.chat.template: {entry.template_name}")


def check_trained(entry: ChatEntry, n_tokens: int) -> None:
    """Raises CorpusError if no token of the dataset is trained, or all are although the mask should leave some out."""
    if entry.mask in ("all", "none") or not n_tokens:
        return
    if entry.n_trained == 0:
        raise CorpusError(
            "encode.chat",
            f"of {n_tokens:,} tokens, none is trained with mask: {entry.mask}. Expected conversations with messages "
            "of the assistant.",
            "Check that source.template or the roles of the messages name the assistant.",
        )
    if entry.n_trained == n_tokens:
        raise CorpusError(
            "encode.chat",
            f"all {n_tokens:,} tokens are trained with mask: {entry.mask}, although messages of others should not be.",
            "Correct the template's {% generation %}, which seems to enclose everything, or set mask: all.",
        )


def is_sure(asked: StopToken | None, answers: AnswerCounts) -> bool:
    """Whether one unit has enough answers to prove that the template writes no stop token, so that the build fails early. Never
    with `next`, since a file may hold only conversations with one answer each."""
    return asked == "trained" and answers.n_answers >= _N_ANSWERS_SURE


def check_stopped(chat: ChatEncoder | None, stop_token: StopToken | None, answers: AnswerCounts) -> None:
    """Raises CorpusError if no trained answer ends with a special token, although the template writes some. `stop_token`:
    encode.chat.stop_token."""
    if chat is None or stop_token == "unchecked" or not chat.writes_special:
        return
    if not answers.n_answers or answers.n_without_stop < answers.n_answers:
        return
    why = (
        "no special token follows an answer either"
        if stop_token == "next"
        else "the template ends a turn only by the marker of the next one, or closes {% generation %} before the end token"
    )
    next_one = (
        ""
        if stop_token == "next"
        else "set encode.chat.stop_token: next, which also trains the special token after each answer; "
    )
    raise CorpusError(
        "encode.chat",
        f"none of {answers.n_answers:,} trained answers ends with a special token, so a model does not learn where "
        f"to stop: {why}.",
        f"Do one of these: {next_one}take a template of your own as a file that writes an end token after each "
        "answer, inside of {% generation %}; or set encode.chat.stop_token: unchecked, if your model is to stop by "
        "other means.",
    )


def tell_of_conversations(manifest: Manifest) -> None:
    """Says how much of samples is repeated, and warns of trained answers without a stop token or without their reasoning."""
    if manifest.chat is None or manifest.chat.answers is None:
        return
    answers, turns = manifest.chat.answers, manifest.chat.turns
    if n := manifest.chat.n_repeated:
        say(
            f"encode: {number_of(manifest.n_documents, 'sample')}; {n:,} of {manifest.n_tokens:,} tokens are in samples that a "
            "longer one of the same conversation follows"
        )
    if n := answers.n_without_stop:
        say(
            f"encode: WARNING: {n:,} of {answers.n_answers:,} trained answers do not end with a special token, so a model does not "
            "learn from them where to stop."
        )
    if n := answers.n_without_reasoning:
        say(
            f"encode: WARNING: the chat template leaves out the reasoning of {n:,} trained messages. Many templates do so in "
            "front of a user's next message." + (" encode.chat.turns: each trains it." if turns == "together" else "")
        )


def check_cut(
    params: Chat, pack: Pack | None, units: Sequence[EncodedUnit], packed: Mapping[str, Mapping[str, int]]
) -> None:
    """Raises CorpusError if packing leaves out trained tokens of more conversations than `encode.chat.cut_max` allows, or the
    template makes both answers of more pairs equal. Each conversation counts once, however often a mixture repeats it. Pairs count
    as they are packed: `packed` has the numbers of each split."""
    if params.turns == "pair":
        _check_pairs(params, pack, units, packed)
        return
    if pack is None or pack.long == "split":
        return
    n_documents = n_cut = 0
    first: list[str] = []
    for unit in units:
        index = read_unit_index(unit.index, ["piece", "row", "n_tokens", "trained_end"])
        ends = index["trained_end"].to_numpy()
        lost = np.flatnonzero((ends if pack.long == "cut" else index["n_tokens"].to_numpy()) * (ends > 0) > pack.length)
        n_documents, n_cut = n_documents + len(index), n_cut + len(lost)
        first += _named(unit, index, lost[: _N_SHOWN - len(first)].tolist())
    if n_cut > _allowed(params, n_documents):
        raise CorpusError(
            [
                f"encode.pack: {n_cut:,} of {n_documents:,} conversations lose trained tokens, because they are longer than "
                f"{pack.length:,} tokens; encode.chat.cut_max allows {_most(params)}. The first:",
                *first,
                "Raise encode.pack.length, set encode.pack.long: split, or raise encode.chat.cut_max.",
            ],
            code="TM212",
        )


def _check_pairs(
    params: Chat, pack: Pack | None, units: Sequence[EncodedUnit], packed: Mapping[str, Mapping[str, int]]
) -> None:
    n_pairs = n_alike = 0
    alike: list[str] = []
    for unit in units:
        index = read_unit_index(unit.index, ["piece", "row", "n_tokens", "n_trained"])
        untrained = np.flatnonzero(index["n_trained"].to_numpy() == 0)
        n_pairs, n_alike = n_pairs + len(index), n_alike + len(untrained)
        alike += _named(unit, index, untrained[: _N_SHOWN - len(alike)].tolist())
    n_cut, why = n_alike, ""
    if pack is not None and packed:
        n_pairs, n_cut, n_equal = (
            sum(of[name] for of in packed.values() for name in names)
            for names in (("n_sequences", "n_dropped_documents"), ("n_cut_answers",), ("n_equal_pairs",))
        )
        longer = f"an answer with its prompt is longer than {pack.length:,} tokens"
        reasons = {"both sides would be equal": n_equal, longer: n_cut - n_equal}
        why = ": " + ", ".join(f"{n:,} because {reason}" for reason, n in reasons.items() if n)
    if n_cut > _allowed(params, n_pairs):
        shown = ["The chat template makes the same tokens of both answers in these:", *alike] if alike else []
        raise CorpusError(
            [
                f"encode.{'chat' if pack is None else 'pack'}: {n_cut:,} of {n_pairs:,} pairs lose trained tokens{why}; "
                f"encode.chat.cut_max allows {_most(params)}.",
                *shown,
                f"{'Take' if pack is None else 'Raise encode.pack.length, take'} another template, drop pairs, or raise "
                "encode.chat.cut_max.",
            ],
            code="TM212",
        )
    if n_alike:
        say(
            f"encode: WARNING: the chat template makes the same tokens of both answers in {n_alike:,} pairs, so they are not "
            "trained."
        )


def _named(unit: EncodedUnit, index: pa.Table, rows: Sequence[int]) -> list[str]:
    """Lines that name rows of a unit's document index, with their tokens."""
    lines = []
    for i in rows:
        [row] = index.slice(i, 1).to_pylist()
        shard, first_row = unit.pieces[row["piece"]]
        lines.append(f"  {shard}, row {first_row + row['row']}: {row['n_tokens']:,} tokens")
    return lines


def _allowed(params: Chat, n_documents: int) -> float:
    return params.cut_max if isinstance(params.cut_max, int) else params.cut_max * n_documents


def _most(params: Chat) -> str:
    return str(params.cut_max) if isinstance(params.cut_max, int) else f"{params.cut_max * 100:g} %"
