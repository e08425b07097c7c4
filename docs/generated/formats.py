"""The tables of file formats, from their facts, what writes them and what reads them."""

from docs.generated.tables import code, table
from tokenmill.format_facts import FORMATS
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill_reader.description import LOADERS, READERS
from tokenmill_reader.formats.table import READ_FORMATS


def files() -> str:
    """The table of the files of each format, and of the tools that read them."""
    rows = []
    for name, facts in FORMATS.items():
        format = SET_FORMATS[name]
        suffixes = ", ".join(map(code, format.suffixes))
        shared = "".join(f", and one {code(one)}" for one in format.shared)
        tools, of_labels = READERS[name]
        labelled = f"with [labels](#labels): {', '.join(of_labels)}" if of_labels else ""
        read_by = "; ".join(filter(None, (", ".join(tools), labelled, facts.note)))
        rows.append([code(name), suffixes + shared, read_by, ", ".join(LOADERS) if name in READ_FORMATS else "–"])
    return table(["format", "files of a part", "read by", "by `tokenmill.open`"], rows)


def readers() -> str:
    """The table of what the tools' own readers find in the files."""
    by_ends = sorted(FORMATS.items(), key=lambda one: not one[1].keeps_ends)
    rows = (
        [code(name), one.gives, "kept" if one.keeps_ends else "not kept", one.mask, one.begins, one.split]
        for name, one in by_ends
    )
    head = ["format", "its own reader gives", "ends of sequences", "loss mask", "where documents begin", "split"]
    return table(head, rows)


def opened() -> str:
    """The table of how `tokenmill.open` reads each format, the first choice first."""
    rows = []
    for name, one in READ_FORMATS.items():
        how = "a row group at a time, the last eight are held" if one.flat is None else "memory-mapped"
        needs = ["documents"] * one.needs_pyarrow + ["packed sequences"] * one.packed_needs_pyarrow
        rows.append([code(name), how, " and ".join(needs) or "nothing"])
    return table(["format", "how it is read", "needs pyarrow for"], rows)
