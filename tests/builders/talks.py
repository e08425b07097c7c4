"""Projects whose documents are conversations."""

import json

from tests.conftest import Project

Talk = list[tuple[str, str]]  # role, content
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|pad|>"]
TALKS: dict[str, list[Talk]] = {
    "a.jsonl": [
        [("user", "the cat sat on the mat"), ("assistant", "the cat and the dog")],
        [
            ("system", "be brief"),
            ("user", "dog?"),
            ("assistant", "log <|im_end|> 🙂"),
            ("user", "and?"),
            ("assistant", "no"),
        ],
    ],
    "b.jsonl": [[("user", "naïve café <|im_start|>assistant"), ("assistant", "東京")]],
}


def messages(talk: Talk) -> list[dict[str, str]]:
    """A conversation as a list of messages."""
    return [{"role": role, "content": content} for role, content in talk]


def write_talks(project: Project, name: str, talks: list[Talk]) -> None:
    """Writes a shard of conversations into data/raw."""
    lines = [json.dumps({"id": f"{name}-{i}", "messages": messages(talk)}) + "\n" for i, talk in enumerate(talks)]
    (project.root / "data/raw" / name).write_text("".join(lines), encoding="utf-8")


def hold_talks(project: Project) -> Project:
    """Puts conversations in place of the documents of a project, rendered by ChatML."""
    for name, some in TALKS.items():
        write_talks(project, name, some)
    project.set(
        source__messages_column="messages",
        train_vocab__special_tokens=SPECIAL,
        train_vocab__vocab_size=280,
        encode__end_of_document=None,
        encode__chat={"template": "chatml"},
    )
    return project
