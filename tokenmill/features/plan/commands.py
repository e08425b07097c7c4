"""The commands plan and choose, which say what a build would do and cost before it is run."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from tokenmill.cli.answer import Answer, text
from tokenmill.cli.versions import find_params
from tokenmill.errors import EXIT_DONE, EXIT_NO, ParamsError
from tokenmill.quantities import number_of
from tokenmill_reader.shown import size

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands
    from tokenmill.pipeline.last_plan import Compared

_WIDTH = 80
_SIZES = (8192, 16384, 32768, 65536)
_OF_THE_DATASET = ("documents", "tokens", "text_bytes", "output_bytes", "sets_bytes", "distinct")  # and not of a build


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    plan = commands.add_parser(
        "plan",
        help="say what a build would cost: tokens, disk, memory and time",
        description="Reads a sample of the documents, and estimates the tokens, bytes, seconds and memory of a build, each with a "
        "range. It builds nothing. Exit code 0: the build may begin, 1: it should not, such as for want of disk or memory.",
        epilog="example: tokenmill plan --seed 1",
    )
    plan.add_argument("--seed", type=int, default=0, metavar="N", help="the seed that draws the sample (default: 0)")
    plan.add_argument(
        "--outcome", action="store_true", help="show the last plan beside what the build after it took; plan nothing"
    )
    plan.add_argument("--params", type=Path, metavar="FILE", help="the project's params.yaml (default: the nearest)")
    plan.set_defaults(run=_plan)
    choose = commands.add_parser(
        "choose",
        help="compare vocabulary sizes and split patterns on the project's documents",
        description="Counts the documents with each pattern, learns a vocabulary of each size, and shows bytes per token, bits "
        "per byte, tokens of the corpus, unused tokens and the parameters of the embedding. It builds and keeps nothing.",
        epilog="example: tokenmill choose --sizes 16384 32768 65536 --patterns gpt2 llama3",
    )
    choose.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=list(_SIZES),
        metavar="N",
        help=f"vocabulary sizes (default: {' '.join(map(str, _SIZES))})",
    )
    choose.add_argument("--patterns", nargs="+", metavar="NAME", help="names or regexes (default: count.pattern)")
    choose.add_argument(
        "--width", type=int, default=2048, metavar="N", help="the width of the model's embedding (default: %(default)s)"
    )
    choose.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw bytes per token against vocabulary size")
    choose.add_argument("--params", type=Path, metavar="FILE", help="the project's params.yaml (default: the nearest)")
    choose.set_defaults(run=_choose)


def _plan(options: argparse.Namespace) -> Answer:
    path = options.params or find_params()
    root = path.absolute().parent
    return _outcome(root) if options.outcome else _new_plan(root, path, options.seed)


def _choose(options: argparse.Namespace) -> Answer:
    from tokenmill.config.load_params import load_params
    from tokenmill.features.plan.choose import choose, lines_of

    if options.plot is not None and not options.plot.absolute().parent.is_dir():  # before the documents are counted
        raise ParamsError(
            "--plot", f"found {options.plot}; there is no folder {options.plot.parent}.", "Make that folder."
        )
    path = options.params or find_params()
    params = load_params(path)
    patterns = options.patterns or [params.count.pattern or "gpt2"]
    rungs = choose(path.absolute().parent, params, options.sizes, patterns, options.width)
    rows = [asdict(rung) for rung in rungs]
    if options.plot is not None:
        from tokenmill.report.plots import ladder

        svg = ladder(rows)
        if not svg.startswith("<svg"):
            raise ParamsError("--plot", "the plot could not be drawn on this machine.", "Leave out --plot.")
        options.plot.write_text(svg, encoding="utf-8")
    return text({"vocabularies": rows}, lines_of(rungs))


def _new_plan(root: Path, params_path: Path, seed: int) -> Answer:
    from tokenmill.config.load_params import load_params
    from tokenmill.corpus.source_shards import hidden_files, unread_files, words_of_unread
    from tokenmill.features.plan.planning import make_plan
    from tokenmill.features.plan.sampling import SampleSize
    from tokenmill.pipeline.last_plan import compare, keep_plan

    params = load_params(params_path)
    plan = make_plan(root, params, SampleSize(seed)).as_json()
    unread = unread_files(root, params)
    would_run = any(stage["would_run"] for stage in plan["stages"])
    if would_run:  # else it would take the place of the plan of the last build
        keep_plan(root, plan)
    rows = [row for row in compare(plan, {}) if would_run or row.quantity in _OF_THE_DATASET]
    lines = [*_stage_lines(plan["stages"]), "", *_table(rows)]
    if plan["sampled_bytes"]:
        lines += ["", *wrap(_basis(plan), _WIDTH)]
    for note in plan["notes"]:
        lines += ["", *wrap(note, _WIDTH)]
    if words := words_of_unread(unread, hidden_files(root, params)):
        lines += ["", *wrap(words, _WIDTH)]
    for reason in plan["refused"]:
        lines += ["", *wrap(f"Do not build yet: {reason}", _WIDTH)]
    return text({**plan, "unread_files": unread}, lines, EXIT_NO if plan["refused"] else EXIT_DONE)


def _outcome(root: Path) -> Answer:
    from tokenmill.pipeline.last_plan import compare, outcome_of, read_plan

    plan = read_plan(root)
    rows = compare(plan, outcome_of(root, plan))
    found = [row for row in rows if row.is_inside is not None]
    words = f"{sum(bool(row.is_inside) for row in found)} of {len(found)} were in their range."
    result = {"rows": [row._asdict() for row in rows]}
    return text(result, [*_table(rows, has_outcome=True), "", words])


def _stage_lines(stages: Sequence[dict[str, Any]]) -> list[str]:
    """A line a stage: its units, those to be done, and why."""
    cells = [("stage", "units", "to do", "why")]
    for stage in stages:
        n, n_todo = ("–" if n is None else f"{n:,}" for n in (stage["n_units"], stage["n_units_todo"]))
        cells.append((stage["stage"], n, n_todo, "; ".join(stage["reasons"]) if stage["would_run"] else "up to date"))
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    lines = []
    for name, units, todo, why in cells:
        head = f"{name:<{widths[0]}}  {units:>{widths[1]}}  {todo:>{widths[2]}}  "
        lines += wrap(why, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False) or [
            head.rstrip()
        ]
    return lines


def _table(rows: Sequence["Compared"], has_outcome: bool = False) -> list[str]:
    """The quantities: from the low to the high end of the range, and what was found."""
    from tokenmill.pipeline.last_plan import COLUMNS, shown

    n_columns = len(COLUMNS) if has_outcome else 4
    cells = [row[:n_columns] for row in (COLUMNS, *shown(rows))]
    widths = [max(len(row[i]) for row in cells) for i in range(n_columns)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in cells
    ]


def _basis(plan: dict[str, Any]) -> str:
    n = plan["n_shards"]
    return (
        f"{number_of(n, 'file')} of {size(plan['shard_bytes'])}. {size(plan['read_bytes'])} of their text were "
        f"read, and {size(plan['sampled_bytes'])} encoded (seed {plan['seed']}). A build lies within each range with a "
        f"confidence of {plan['confidence']:.0%}; its seconds also depend on what else the machine does."
    )
