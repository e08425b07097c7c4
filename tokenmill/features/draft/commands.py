"""The command draft-vocab."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, text
from tokenmill.cli.dataset_arguments import dataset_of, dataset_path
from tokenmill.errors import EXIT_DONE, EXIT_NO

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands


def add_commands(commands: "Commands") -> None:
    """Adds the command to the parser."""
    draft = commands.add_parser(
        "draft-vocab",
        help="write the most frequent tokens of a dataset for speculative decoding",
        description="Counts the tokens of a dataset, and writes the draft vocabulary of the most frequent ones: d2t and t2d, as "
        "SpecForge and SGLang read them, and how much of the dataset each size covers. With --check, exit code 0: the files "
        "are those of the dataset, 1: they are others.",
        epilog="example: tokenmill draft-vocab data/tokens draft --top 32768 --trained-only",
    )
    draft.add_argument("dataset", type=dataset_path, metavar="DATASET", help="the folder of a token dataset")
    draft.add_argument("directory", type=Path, metavar="DIR", help="the directory of the new files")
    draft.add_argument("--top", type=int, default=32768, metavar="N", help="the number of ids (default: %(default)s)")
    draft.add_argument(
        "--vocab-size", type=int, metavar="N", help="the model's vocabulary size, if it is larger than the tokenizer's"
    )
    draft.add_argument("--trained-only", action="store_true", help="count only where the loss mask is 1")
    draft.add_argument(
        "--check",
        action="store_true",
        help="write nothing, and compare the files in DIR with the dataset, by the settings in their draft_vocab.json",
    )
    draft.set_defaults(run=_draft_vocab)


def _draft_vocab(options: argparse.Namespace) -> Answer:
    from tokenmill.features.draft.draft_vocab import differences, draft_vocab, lines_of

    dataset = Path(dataset_of(options))
    if options.check:
        wrong = differences(dataset, options.directory)
        lines = wrong or [f"{options.directory}: the draft vocabulary of {dataset}"]
        return text({"differences": wrong}, lines, EXIT_NO if wrong else EXIT_DONE)
    draft = draft_vocab(dataset, options.directory, options.top, options.vocab_size, options.trained_only)
    return text(draft.model_dump(mode="json"), lines_of(draft, options.directory))
