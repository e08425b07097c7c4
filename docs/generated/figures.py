"""The tables of the page of figures, from the newest records of the benchmarks; what is said about them stands in figures.md."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from statistics import median
from typing import Any

from benchmarks import record
from docs.generated.tables import table

_TEXTS = {"english": "English", "code": "code", "multilingual": "five languages"}
_SEQUENCE_MB = 2048 * 2 / 1e6  # of benchmarks.reader_remote
_CORES: dict[int, str] = {1: "one core", 2: "two cores"}


def part(name: str) -> str:
    """How and where a section was measured, and its tables; nothing where no record has it."""
    section = _newest().get(name)
    return "" if section is None else f"{_measured(section)}\n{_TABLES[name](section)}"


@cache
def _newest() -> dict[str, Any]:
    return record.newest()


def encoding(section: dict[str, Any]) -> str:
    """Speeds by tool and text, of fresh text and of text met before."""
    return "\n".join(_encoding_tables(section))


def _encoding_tables(section: dict[str, Any]) -> Iterator[str]:
    cells = section["cells"]
    texts = [text for text in _TEXTS if any(cell["text"] == text for cell in cells)]
    sizes = {cell["text"]: cell["text_bytes"] for cell in cells}
    for cores in sorted({cell["cores"] for cell in cells}):
        for key, what in (("first", "fresh text"), ("later", "text met before")):
            yield f"### {_CORES.get(cores, f'{cores} cores').capitalize()}, {what}\n"
            rows = []
            for tool in dict.fromkeys(cell["tool"] for cell in cells):
                of_tool = [_cell(cells, text=text, cores=cores, tool=tool) for text in texts]
                own = [_cell(cells, text=text, cores=cores, tool="tokenmill") for text in texts]
                if any(record.speeds(one, key) or one.get("failed") or one.get("answer") == "other" for one in of_tool):
                    rows.append([tool, *(_speed(one, mine, key) for one, mine in zip(of_tool, own, strict=True))])
            head = [f"{_TEXTS[text]}, {sizes[text] / 1e6:.0f} MB" for text in texts]
            yield table(["MB a second of processor time" if cores == 1 else "MB/s", *head], rows, n_right=len(texts))


def _speed(cell: dict[str, Any], own: dict[str, Any], kind: str) -> str:
    runs = record.speeds(cell, kind)
    if not runs:
        return "other ids" if cell.get("answer") == "other" else "does not run" if cell.get("failed") else "–"
    times = ""
    if not cell["tool"].startswith("tokenmill") and record.speeds(own, kind):
        times = f";&nbsp;{median(record.speeds(own, kind)) / median(runs):.2f}&nbsp;×"
    spread = f"{_number(min(runs))}–&#8288;{_number(max(runs))}" if len(runs) > 1 else "one&nbsp;run"
    return f"{_number(median(runs))} ({spread}{times})"


def threads(section: dict[str, Any]) -> str:
    """How much two threads of one call give."""
    rows = []
    for cell in section["cells"]:
        if "failed" in cell:
            continue
        for kind, what in (("first", "fresh text"), ("later", "text met before")):
            one, several, apart = (cell[f"runs_{kind}_{way}_s"] for way in ("one", "several", "apart"))
            gain = [f"{median(one) / median(way):.2f} × ({min(one) / min(way):.2f} ×)" for way in (several, apart)]
            rows.append([_TEXTS[cell["text"]], what, *gain])
    return table(["text", "", "two threads of one call", "two with nothing in common"], rows, n_right=2)


def training(section: dict[str, Any]) -> str:
    """Counting and merging, by tool."""
    parts = []
    for text, vocab_size in dict.fromkeys((cell["text"], cell["vocab_size"]) for cell in section["cells"]):
        cells = [cell for cell in section["cells"] if (cell["text"], cell["vocab_size"]) == (text, vocab_size)]
        one = cells[0]
        size = f", {one['text_bytes'] / 1e6:.1f} MB" if one["text_bytes"] else ""
        cores = _CORES[one["cores"]]
        parts.append(f"### {_TEXTS.get(text, text)}{size}, {vocab_size:,} tokens, {cores}\n")
        own = next(cell["runs_cpu_s"] for cell in cells if cell["tool"] == "tokenmill")
        rows = [
            [cell["tool"], cell["failed"], "", "", "", ""]
            if "failed" in cell
            else [cell["tool"], "other tokens", "", "", "", ""]
            if "runs_s" not in cell
            else [
                cell["tool"],
                _range(cell["runs_s"]),
                _range(cell["runs_cpu_s"]),
                f"{median(cell['runs_cpu_s']) / median(own):.1f} ×",
                _number(median(cell["runs_peak_mb"])),
                cell["answer"],
            ]
            for cell in cells
        ]
        parts.append(table(["tool", "seconds", "processor time, s", "by tokenmill's", "peak, MB", "tokens"], rows))
    return "\n".join(parts)


def building(section: dict[str, Any]) -> str:
    """Whole builds: the first, one with nothing changed, one with one shard changed."""
    rows = [
        [
            cell["build"],
            _range(cell["runs_s"]),
            f"{_number(median(cell['runs_overhead_s']))} ({median(cell['runs_overhead_s']) / median(cell['runs_s']):.0%})",
            _number(median(cell["runs_peak_mb"])),
        ]
        for cell in section["cells"]
    ]
    return table(["build", "seconds", "of them overhead", "peak, MB"], rows, n_right=3)


def first_building(section: dict[str, Any]) -> str:
    """Whole builds as a user starts them."""
    rows = [[cell["build"], _range(cell["runs_s"]), _range(cell["runs_cpu_s"])] for cell in section["cells"]]
    return table(["build", "seconds", "processor time, s"], rows, n_right=2)


def clusters(section: dict[str, Any]) -> str:
    """One worker and two, by stage."""
    cells = section["cells"]
    rows = []
    for cell in (one for one in cells if one["what"].startswith("stage") and one["workers"] == 1):
        two = _cell(cells, what=cell["what"], engine=cell["engine"], workers=2)
        ratio = median(cell["runs_s"]) / median(two["runs_s"])
        rows.append([cell["engine"], cell["what"], _range(cell["runs_s"]), _range(two["runs_s"]), f"{ratio:.2f} ×"])
    return table(["engine", "", "one worker, s", "two workers, s", "faster"], rows, n_right=3)


def clusters_many(section: dict[str, Any]) -> str:
    """What a unit costs beside the work on its text."""
    builds = section["cells"]
    rows = []
    for few, many in zip(builds[::2], builds[1::2], strict=True):
        unit_ms = 1e3 * (many["runs_s"][0] - few["runs_s"][0]) / (many["units"] - few["units"])
        rows.append(
            [
                many["engine"],
                *(f"{one['units']:,} units: {_number(one['runs_s'][0])} s" for one in (few, many)),
                f"{unit_ms:.1f} ms",
                f"{many['runs_peak_mb'][0]:,.0f}",
            ]
        )
    return table(["engine", "few", "many", "for a unit", "the build's own process, MB"], rows, n_right=4)


def storage(section: dict[str, Any]) -> str:
    """Reading and stages, from files and from objects."""
    rows = []
    for cell in section["cells"]:
        files = _cell(section["cells"], what=cell["what"], tool="files")
        share = median(files["runs_s"]) / median(cell["runs_s"])
        rows.append([cell["what"], cell["tool"], _range(cell["runs_s"]), f"{share:.2f}"])
    return table(["", "read by", "seconds", "speed by that of files"], rows, n_right=2)


def reader_remote(section: dict[str, Any]) -> str:
    """What reading a remote dataset costs, beside the same files on the disk and other tools."""
    rows = []
    for cell in section["cells"]:
        if "runs_s" in cell:
            mb = cell["n_items"] * _SEQUENCE_MB
            costs = [f"{1e3 * median(cell[runs]) / mb:.1f}" for runs in ("runs_own_cpu_s", "runs_cpu_s")]
            fetched = f"{median(cell['fetched']):.2f}" if cell["tool"] != "tokenmill, local" else ""
            rows.append([cell["name"], cell["tool"], _number(mb / median(cell["runs_s"])), *costs, fetched])
    return table(["", "read by", "MB/s", "own, ms a MB", "all, ms a MB", "fetched"], rows, n_right=4)


def published(section: dict[str, Any]) -> str:
    """Speeds with tokenizers as they are published, by tool and text, and those of tokenmill by that of the fastest other tool."""
    parts = []
    cells = section["cells"]
    texts = [text for text in _TEXTS if any(cell["text"] == text for cell in cells)]
    for tokenizer in dict.fromkeys(cell["tokenizer"] for cell in cells):
        own = [one for one in cells if one["tokenizer"] == tokenizer]
        rows = []
        for tool in dict.fromkeys(cell["tool"] for cell in own):
            row = [tool]
            for text in texts:
                cell = _cell(own, text=text, tool=tool)
                speeds = cell.get("runs_mb_per_s")
                others = [
                    median(one["runs_mb_per_s"])
                    for one in own
                    if one["text"] == text and "runs_mb_per_s" in one and not one["tool"].startswith("tokenmill")
                ]
                ratio = (
                    f", {median(speeds) / max(others):.2f} ×"
                    if speeds and others and tool.startswith("tokenmill")
                    else ""
                )
                row.append(
                    f"{_range(speeds)}{ratio}" if speeds else "other ids" if "answer" in cell else "does not run"
                )
            rows.append(row)
        sizes = [_cell(own, text=text)["text_bytes"] / 1e6 for text in texts]
        head = [f"{_TEXTS[text]}, {size:.0f} MB" for text, size in zip(texts, sizes, strict=True)]
        parts.append(f"### {tokenizer}\n\n{table(['MB/s', *head], rows, n_right=len(texts))}")
    return "\n".join(parts)


def encode_stage(section: dict[str, Any]) -> str:
    """The stages on 504 MB, and where the time of their threads goes."""
    whole = [cell for cell in section["cells"] if "what" in cell]
    rows = [
        [
            cell["what"],
            _range(cell["runs_s"]),
            _range(cell["runs_mb_per_s"]),
            f"{cell['documents'] / median(cell['runs_s']):,.0f}",
        ]
        for cell in whole
    ]
    steps = [cell for cell in section["cells"] if "step" in cell]
    shares = [[cell["stage"], cell["step"], f"{cell['share']:.0%}"] for cell in steps]
    return "\n".join(
        [
            table(["", "seconds", "MB/s", "documents a second"], rows, n_right=3),
            table(["stage", "step", "of the threads' time"], shares, n_right=1),
        ]
    )


def verify(section: dict[str, Any]) -> str:
    """Checks of whole datasets."""
    rows = []
    for cell in section["cells"]:
        speeds = [cell["text_bytes"] / 1e6 / one for one in cell["runs_s"]]
        rows.append([f"{cell['text_bytes'] / 1e6:,.0f} MB, {cell['name']}", _range(cell["runs_s"]), _range(speeds)])
    return table(["dataset", "seconds", "MB/s"], rows, n_right=2)


def chat(section: dict[str, Any]) -> str:
    """Instruction samples to packed sequences, by tool."""
    own = median(section["cells"][0]["runs_s"])
    rows = [
        [cell["way"], _range(cell["runs_s"]), _range(cell["runs_cpu_s"]), f"{median(cell['runs_s']) / own:.1f} ×"]
        for cell in section["cells"]
    ]
    return table(["", "seconds", "processor time, s", "by tokenmill's"], rows, n_right=3)


def task(section: dict[str, Any]) -> str:
    """The steps of an encode task, and readers of JSON lines."""
    rows = [[cell["step"], _range(cell["runs_mb_per_s"])] for cell in section["cells"]]
    return table(["step", "MB/s"], rows, n_right=1)


def hard(section: dict[str, Any]) -> str:
    """Huge pre-tokens, and runs of one character."""
    shapes = [cell for cell in section["cells"] if "shape" in cell]
    rows = []
    for name in dict.fromkeys(cell["shape"] for cell in shapes):
        short, long = (cell for cell in shapes if cell["shape"] == name)
        ratio = min(long["runs_cpu_s"]) / long["text_bytes"] / (min(short["runs_cpu_s"]) / short["text_bytes"])
        rows.append(
            [name, *(_range([1e3 * one for one in cell["runs_cpu_s"]]) for cell in (short, long)), f"{ratio:.2f} ×"]
        )
    classes = _classes([cell for cell in section["cells"] if "pattern" in cell])
    return "\n".join(
        [
            table(["shape", "20 kB, ms", "2 MB, ms", "for a byte"], rows, n_right=3),
            table(["pattern", "character", "4 MB, ms", "16 MB, ms", "growth"], classes, n_right=3),
        ]
    )


def _classes(cells: list[dict[str, Any]]) -> Iterator[list[str]]:
    for pattern in dict.fromkeys(cell["pattern"] for cell in cells):
        pairs: dict[str, list[dict[str, Any]]] = {}
        for cell in cells:
            if cell["pattern"] == pattern:
                pairs.setdefault(cell["character"], []).append(cell)
        growth = {one: min(long["runs_cpu_s"]) / min(short["runs_cpu_s"]) for one, (short, long) in pairs.items()}
        most = max(growth, key=growth.__getitem__)
        times = [_range([1e3 * one for one in cell["runs_cpu_s"]]) for cell in pairs[most]]
        yield [pattern, f"`{most}`", *times, f"{growth[most]:.2f} ×"]


def _measured(section: dict[str, Any]) -> str:
    machine = section["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in section["versions"].items())
    changed = " with changes that are not in it" if section["is_dirty"] else ""
    vector = " with AVX-512" if machine["has_avx512"] else ""
    return (
        f"*Measured {section['date']} at commit {section['commit'][:12]}{changed}: {machine['cpu']} (family and model "
        f"{machine['cpu_family_and_model']}){vector}, {machine['cores']} cores, {machine['memory_mb'] / 1000:.0f} GB, "
        f"{machine['os']}, Python {machine['python']}. The machine is shared: on average {section['load_at_start']} processes "
        f"wanted its cores when this began, and {section['load_at_end']} when it ended. {versions}.*\n"
    )


def _cell(cells: Iterable[dict[str, Any]], **named: Any) -> dict[str, Any]:
    return next((cell for cell in cells if named.items() <= cell.items()), {})


def _range(runs: list[float]) -> str:
    """The median, with the lowest and the highest where there are several."""
    middle = _number(median(runs))
    return middle if len(runs) == 1 else f"{middle} ({_number(min(runs))}–{_number(max(runs))})"


def _number(value: float) -> str:
    """With three digits that say something.

    >>> [_number(one) for one in (0.01234, 3.456, 45.67, 1234.5)]
    ['0.0123', '3.46', '45.7', '1,234']
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


_TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "encode": encoding,
    "encode_2": encoding,
    "encode_published": published,
    "encode_stage": encode_stage,
    "verify": verify,
    "chat": chat,
    "threads": threads,
    "train": training,
    "build": building,
    "first_build": first_building,
    "clusters": clusters,
    "clusters_many": clusters_many,
    "storage": storage,
    "reader_remote": reader_remote,
    "task": task,
    "hard": hard,
}

NAMES = tuple(_TABLES)
"""The sections that have tables."""
