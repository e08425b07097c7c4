"""The chat templates that come with tokenmill, by name."""

from pathlib import Path

from tokenmill.errors import TemplateError, did_you_mean

TURN_TOKENS = {
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "qwen3": ("<|im_start|>", "<|im_end|>"),
    "mistral": (),  # the marks of its first tokenizers are plain text
    "gemma": ("<start_of_turn>", "<end_of_turn>"),
    "deepseek": ("<｜User｜>", "<｜Assistant｜>"),
}
"""What each template marks turns with. A tokenizer without these as added tokens would read them as plain text."""

TURN_ENDS = {
    "chatml": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "qwen3": "<|im_end|>",
    "gemma": "<end_of_turn>",
}
"""The end-of-turn token of templates that write their own; the others write eos_token."""

NAMED = tuple(TURN_TOKENS)
"""The names. Each template marks what an assistant generates with `{% generation %}`."""

_FOLDER = Path(__file__).parent / "templates"


def template_text(name: str) -> str:
    """The text of a template. Raises TemplateError for a name that none has.

    >>> "<|im_start|>" in template_text("chatml")
    True
    """
    if name not in NAMED:
        raise TemplateError(
            "", f"no chat template is called {name!r}; known: {', '.join(NAMED)}.", did_you_mean(name, NAMED)
        )
    return (_FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
