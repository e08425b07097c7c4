"""The parameters that a unit which is made again may name as its cause."""

import pytest

from tokenmill.pipeline.causes import decides_units
from tokenmill.project.parameters import keys


@pytest.mark.parametrize(
    ("key", "stages"),
    [
        ("source.text_column", {"count", "encode", "validate"}),
        ("source.a_later_one", {"count", "encode", "validate"}),
        ("sources.web", {"count", "encode", "validate"}),
        ("sources.web.template", {"count", "encode", "validate"}),
        ("source.keep_columns", {"encode", "validate"}),
        ("sources.web.special_tokens_in_text", {"encode", "validate"}),
        ("train_vocab.trim.from", {"count", "encode", "validate"}),
        ("train_vocab.trim.keep", {"encode", "validate"}),
        ("encode.chat.mask", {"count", "encode", "validate"}),
        ("source.license", set()),
        ("sources.web.epochs", set()),
        ("count.count_min", set()),
        ("encode.shuffle.seed", set()),
        ("encode.vocab_sizes", set()),
        ("validate.gates", set()),
    ],
)
def test_a_parameter_is_a_cause_unless_it_is_known_to_decide_no_unit(key: str, stages: set[str]) -> None:
    assert {stage for stage in ("count", "encode", "validate") if decides_units(stage, key)} == stages


def test_the_parameters_that_decide_no_unit_are_these_of_params_yaml() -> None:
    """A name that is misspelled in the module would be missing here."""
    names = [name.replace("NAME", "web") for name in keys()]
    without = [name for name in names if name.count(".") <= 1 + ("web" in name) and not decides_units("encode", name)]
    assert len(without) == 27, without
