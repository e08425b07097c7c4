"""Describes a tokenizer file: its properties, its oddities, and the engine that would run it."""

import re
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.features import PARTS
from tokenmill.features.convert.oddities import entry, of_document, of_model, unmatched
from tokenmill.pretokenizers import patterns
from tokenmill.pretokenizers.json_steps import parts_of
from tokenmill.quantities import number_of
from tokenmill.tokenizer.formats.as_loaded import mended
from tokenmill.tokenizer.formats.files import file_of
from tokenmill.tokenizer.formats.folder import changes, with_folder
from tokenmill.tokenizer.formats.schema import read_document, unread_fields
from tokenmill.tokenizer.formats.tiktoken_file import with_own_ranks
from tokenmill.tokenizer.forms import loaded, warnings_of
from tokenmill.tokenizer.model import BYTE_TOKENS
from tokenmill_reader.regular_files import read

_N_SHOWN = 12
_LIKE_A_REGEX = re.compile(r"\\[psdwPSDW]|\[\^|\(\?|\]\+")
_SPLITTERS = {"scanner": "the core's scanner for it", "regex": "fancy-regex, many times as slow as a scanner"}


def check_tokenizer(path: Path, pattern: str | None = None) -> dict[str, Any]:
    """The description of a directory, a tokenizer.json, or a .tiktoken file with its `pattern`, as JSON values.

    Raises TokenizerError or PatternError for a file that is refused.
    """
    form = loaded(path, pattern)
    tokenizer = form.tokenizer
    model, document = tokenizer.model, tokenizer.document
    tokens = {id: tokenizer.token_bytes(id) for id in tokenizer.ids}
    merged = None if model is None else with_own_ranks(model)
    oddities = of_document(document, tokens) + (of_model(merged) if merged else _of_others(document))
    cases: dict[str, list[str]] = {}
    if path.suffix == ".tiktoken":
        steps = patterns.steps_of(pattern or "")
        if len(steps) == 1 and patterns.name_of(steps) is None:
            cases["text that the pattern does not match: kept here, dropped by tiktoken"] = unmatched(*steps)
    else:
        file = file_of(path)
        content = read(file)
        as_read = read_document(content, str(file))
        cases = {**mended(content, as_read), "fields that nothing reads": unread_fields(as_read)}
        cases["splits by a text that looks like a regex: only that very text matches"] = _split_by_text(as_read)
        cases |= _from_beside(path, as_read)
    oddities += [entry(what, examples) for what, examples in cases.items() if examples]
    return {
        "kind": "byte-level BPE" if model else document["model"]["type"],
        "engine": tokenizer.engine,
        "engine_reason": tokenizer.engine_reason,
        "splitter": tokenizer.splitter,
        "digest": tokenizer.digest,
        "vocab_size": tokenizer.vocab_size,
        "id_max": tokenizer.id_max,
        "n_merges": len(merged.merges if merged else document["model"].get("merges") or []),
        "n_merged_tokens": len({left + right for left, right in document["model"].get("merges") or []}),
        "pattern": tokenizer.pattern,
        "steps": None if tokenizer.steps is None else list(tokenizer.steps),
        "normalizer": document.get("normalizer"),
        "pre_tokenizer": document.get("pre_tokenizer"),
        "ignore_merges": bool(document["model"].get("ignore_merges")),
        "special_tokens": tokenizer.special_tokens,
        "oddities": oddities,
        "elsewhere": [warning for program in PARTS["elsewhere"] for warning in warnings_of(form, program)],
    }


def lines_of(description: dict[str, Any], place: str) -> list[str]:
    """The result of `check_tokenizer` as lines for a terminal."""
    specials = ", ".join(f"{text} = {id}" for text, id in list(description["special_tokens"].items())[:_N_SHOWN])
    n_more = len(description["special_tokens"]) - _N_SHOWN
    why = f", because {description['engine_reason']}" if description["engine_reason"] else ""
    pattern = description["pattern"] or (
        number_of(len(description["steps"]), "step")
        if description["steps"]
        else "none"
        if description["steps"] == []
        else _kind(description["pre_tokenizer"])
    )
    lines = [
        f"{place}: {description['kind']}",
        f"  engine          {description['engine']}{why}",
        f"  vocabulary      {description['vocab_size']:,} tokens, largest id {description['id_max']:,}, "
        f"{number_of(description['n_merges'], 'merge')}"
        + (
            f" for {description['n_merged_tokens']:,} tokens"
            if description["n_merged_tokens"] < description["n_merges"]
            else ""
        )
        + (", ignore_merges" if description["ignore_merges"] else ""),
        f"  split           {pattern}"
        + (f", by {_SPLITTERS[description['splitter']]}" if description["splitter"] else ""),
        f"  normalizer      {_kind(description['normalizer'])}",
        f"  special tokens  {specials or 'none'}" + (f" and {n_more} more" if n_more > 0 else ""),
        f"  digest          {description['digest']}",
    ]
    for oddity in description["oddities"]:
        examples = ", ".join(oddity["examples"])
        more = ", …" if oddity["n"] > len(oddity["examples"]) > 0 else ""
        lines.append(
            f"  odd             {oddity['what']} ({oddity['n']:,})" + (f": {examples}{more}" if examples else "")
        )
    if not description["oddities"]:
        lines.append("  odd             nothing")
    return [*lines, *(f"  elsewhere       {warning}" for warning in description["elsewhere"])]


def _from_beside(path: Path, as_read: dict[str, Any]) -> dict[str, list[str]]:
    """What the other files of a folder change in its tokenizer.json, as a folder or, if `path` is the file itself, would change."""
    file = file_of(path)
    is_folder = file != path
    if not is_folder and path.name != "tokenizer.json":
        return {}
    try:
        whole = with_folder(as_read, file.parent)
    except TokenizerError as error:
        return {"its folder would be refused, for the files beside it": [str(error)]}
    tokens, sections = changes(as_read, whole)
    if not is_folder:
        return {
            "files beside it would add or change tokens, or the split; this file counts alone": [*tokens, *sections]
        }
    return {
        "added tokens of the files beside tokenizer.json, as transformers has them": tokens,
        "sections that the class of transformers has otherwise than tokenizer.json": sections,
    }


def _split_by_text(document: dict[str, Any]) -> list[str]:
    parts = parts_of(document.get("pre_tokenizer"), "pretokenizers")
    texts = [part["pattern"].get("String", "") for part in parts if part["type"] == "Split"]
    return [text for text in texts if _LIKE_A_REGEX.search(text)]


def _of_others(document: dict[str, Any]) -> list[dict[str, Any]]:
    model = document["model"]
    texts = {one[0] if isinstance(one, list) else one for one in model["vocab"]}  # a Unigram's have scores
    if model.get("byte_fallback") and texts.issuperset(BYTE_TOKENS):
        return []  # every character has the tokens of its bytes
    if model.get("unk_token") is not None or model.get("unk_id") is not None:
        unk = model.get("unk_token") or str(model.get("unk_id"))
        return [{"what": "characters without a token become the unknown token", "n": 1, "examples": [unk]}]
    return []


def _kind(part: Any) -> str:
    if part is None:
        return "none"
    inner = next((part[key] for key in ("normalizers", "pretokenizers") if key in part), None)
    return f"{part['type']} of {', '.join(map(_kind, inner)) or 'nothing'}" if inner is not None else str(part["type"])
