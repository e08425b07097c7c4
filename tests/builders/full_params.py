"""A params.yaml with every key, as the projects of earlier versions have it."""

from tokenmill.project.parameters import keys, sections


def full_params() -> str:
    """Its text: each section with its keys, and each key with its default."""
    lines = []
    for section in sections():
        lines.append(f"{section}: {keys()[section].default}" if section in keys() else f"{section}:")
        for name, key in keys().items():
            if section not in keys() and name.rpartition(".")[0] == section and name != "count.approximate":
                lines.append(f"  {name.rpartition('.')[2]}: {key.default}")
    return "\n".join(lines) + "\n"
