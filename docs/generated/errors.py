"""The tables of exit codes and of error codes, from tokenmill.errors and error_pages.toml."""

from docs.generated.tables import table
from tokenmill.error_pages import error_pages
from tokenmill.errors import EXIT_CODES


def exit_codes() -> str:
    """The table of exit codes."""
    return table(["exit code", "meaning"], ([f"{number}", _sentence(words)] for number, words in EXIT_CODES.items()))


def codes() -> str:
    """A section for each error code: what it means, and what to do."""
    rows = ([f"[{one}](#{one.lower()})", page.title] for one, page in error_pages().items())
    parts = [table(["code", "title"], rows)]
    for one, page in error_pages().items():
        parts.append(f"### {one}\n\n**{_sentence(page.title)}** {page.meaning}\n\n**What to do.** {page.advice}\n")
    return "\n".join(parts)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
