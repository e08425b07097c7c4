"""A small tokenizer in a folder, as a build writes it."""

from pathlib import Path

from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.artifacts.golden import write_golden
from tokenmill.artifacts.golden_making import make_golden
from tokenmill.artifacts.golden_texts import PANEL
from tokenmill.artifacts.model_card import make_card, write_card
from tokenmill.chat.named import template_text
from tokenmill.features.conform.program.write import write_program
from tokenmill.tokenizer.chat_files import replace_chat_files


def small_tokenizer(folder: Path, pattern: str = "gpt2") -> Path:
    """Writes a tokenizer of 900 tokens with the chat template chatml into a new folder, which is returned."""
    counter = Counter(pattern)
    counter.update([*PANEL.values(), *PANEL.values()])
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made = train_vocab(counter.finish(), vocab_size=900, pattern=pattern, special_tokens=special)
    folder.mkdir()
    made.save(folder)
    replace_chat_files(folder, template_text("chatml"), {})
    return with_card(folder, made)


def with_card(folder: Path, tokenizer: Tokenizer) -> Path:
    """Writes what a build writes beside the files of a tokenizer."""
    golden = make_golden(folder, tokenizer, {})
    write_golden(golden, folder)
    write_card(make_card(tokenizer, golden, None, None), folder)
    write_program(folder)
    return folder
