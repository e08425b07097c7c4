"""Formats whose own readers would not read what a build packs are refused."""

from typing import Any

import pytest

from tokenmill.config.encode_params import Encode
from tokenmill.errors import ParamsError
from tokenmill.format_facts import FORMATS
from tokenmill.stages.encode_sets import refuse_formats
from tokenmill_reader.formats.items import Shape

FORGET = [name for name, one in FORMATS.items() if not one.keeps_ends]
KEEP = [name for name, one in FORMATS.items() if one.holds_labels]
PAD = {"pad": "<|pad|>"}


def refused(
    formats: str | list[str], pack: dict[str, Any] | None, shuffle: bool = False, end_id: int | None = 0
) -> str:
    """Why a build with these formats is refused; "" if it is not."""
    params = Encode.model_validate(
        {
            "formats": [formats] if isinstance(formats, str) else formats,
            "file_bytes": 1 << 30,
            "splits": {},
            "split_group": None,
            "shuffle": {"seed": 0} if shuffle else None,
            "pack": None if pack is None else {"length": 16, **pack},
            "vocab_sizes": [],
            "begin_of_document": None,
            "end_of_document": None if end_id is None else "<|endoftext|>",
            "special_tokens_in_text": "as_text",
        }
    )
    is_packed = params.pack is not None and params.pack.output == "rows"
    shape = Shape(999, "7" * 64, 1, end_id, True, 16 if is_packed else None)
    try:
        refuse_formats(params.formats, params, shape)
    except ParamsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("format", FORGET)
@pytest.mark.parametrize("mode", ["best_fit", "none"])
def test_sequences_that_a_reader_of_windows_would_lose_are_refused_with_two_ways_out(format: str, mode: str) -> None:
    words = refused(format, {"mode": mode})
    assert words.startswith(f"encode.formats: {format}: trainers read these files in windows of one length")
    assert "Set encode.pack.pad" in words and "encode.pack.mode: concat" in words
    assert refused(format, {"mode": mode, **PAD}) == ""
    assert refused(format, {"mode": "concat"}) == ""
    if format != "nanogpt":
        assert refused(format, {"mode": mode, "output": "index"}) == ""


@pytest.mark.parametrize("format", FORGET)
def test_a_shuffle_puts_the_short_sequences_of_concat_between_the_others(format: str) -> None:
    words = refused(format, {"mode": "concat"}, shuffle=True)
    assert "Set encode.pack.pad" in words and "encode.shuffle: null" in words
    assert refused(format, {"mode": "concat", **PAD}, shuffle=True) == ""


@pytest.mark.parametrize("format", KEEP)
@pytest.mark.parametrize("mode", ["best_fit", "none", "concat"])
def test_formats_whose_readers_keep_sequences_take_every_packing(format: str, mode: str) -> None:
    assert refused(format, {"mode": mode}, shuffle=True, end_id=None) == ""


def test_olmo_needs_the_token_that_ends_documents() -> None:
    assert "encode.end_of_document is null" in refused("olmo", None, end_id=None)
    for pack in ({"mode": "none"}, {"mode": "best_fit", **PAD}):
        words = refused("olmo", {**pack, "long": "cut"})
        assert "encode.pack.long: cut cuts off" in words and "Set long: split or drop" in words
    for long in ("split", "drop"):
        assert refused("olmo", {"mode": "best_fit", **PAD, "long": long}) == ""
    assert refused("olmo", {"mode": "none", "long": "cut", "output": "index"}) == ""
    assert refused("megatron", {"mode": "none", "long": "cut", **PAD}, end_id=None) == ""


def test_all_reasons_are_in_one_message() -> None:
    assert len(refused("olmo", {"mode": "best_fit", "long": "cut"}, end_id=None).splitlines()) == 3


def test_formats_with_the_same_reason_are_in_one_line() -> None:
    (line,) = refused(["parquet", "megatron", "nanogpt"], {"mode": "best_fit"}).splitlines()
    assert line.startswith("encode.formats: megatron, nanogpt: ")
