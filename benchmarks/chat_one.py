"""TRL prepares instruction samples, in a process of its own: python -m benchmarks.chat_one N_PROCESSES FOLDER.

FOLDER holds rows.jsonl (instruction, input, output), tokenizer.json, template.jinja, and cache, which is empty. Prints one line of
JSON: the seconds of SFTTrainer._prepare_dataset and of reading the rows as messages before it, the processor time of the first,
with all processes, the answer, the number of sequences, and the versions of the tools.
"""

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.process import timed

N_PROCESSES = (1, 2)
LENGTH = 2048


class Answer(NamedTuple):
    """What two ways are compared by, of all conversations in order: their number, the numbers of their tokens and of those to be
    learned, and a digest of lengths, ids and masks."""

    n_conversations: int
    n_tokens: int
    n_trained: int
    sha256: str


def main() -> None:
    n_processes, folder = int(sys.argv[1]), Path(sys.argv[2])
    from datasets import load_dataset, utils
    from trl.trainer import sft_trainer

    utils.logging.disable_progress_bar()

    def read() -> Any:
        given = load_dataset(
            "json", data_files=str(folder / "rows.jsonl"), split="train", cache_dir=str(folder / "cache")
        )
        return given.map(as_messages, remove_columns=given.column_names)

    reading = timed(read)
    rows = reading.result
    trainer = trainer_of(folder, n_processes, rows.select(range(1)))
    given = []
    pack_dataset = sft_trainer.pack_dataset

    def pack(dataset: Any, *arguments: Any) -> Any:
        given.append(dataset)
        return pack_dataset(dataset, *arguments)

    sft_trainer.pack_dataset = pack
    arguments = (trainer.processing_class, trainer.args, True, None, "train")
    seconds, cpu_s, packed = timed(lambda: trainer._prepare_dataset(rows, *arguments))
    table = given[0].with_format("arrow")[:]
    answer = answer_of(table["input_ids"], table["labels"], -100)
    versions = {name: version(name) for name in ("trl", "transformers", "tokenizers", "datasets")}
    numbers = {"seconds": seconds, "cpu_s": cpu_s, "read_s": reading.seconds, "n_sequences": len(packed)}
    print(json.dumps({**numbers, "answer": answer, "versions": versions}))


def as_messages(row: dict[str, str]) -> dict[str, Any]:
    """The conversation of a sample; an input without text is left out."""
    question = "\n\n".join(part for part in (row["instruction"], row["input"]) if part)
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": row["output"]}]}


def trainer_of(folder: Path, n_processes: int, rows: Any) -> Any:
    """A trainer of a model without size, whose preparation is that of any other."""
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
    from trl import SFTConfig, SFTTrainer

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        chat_template=(folder / "template.jinja").read_text(encoding="utf-8"),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    config = Qwen3Config(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8
    )
    args = SFTConfig(
        str(folder / "cache/out"),
        assistant_only_loss=True,
        packing=True,
        packing_strategy="bfd",
        max_length=LENGTH,
        dataset_num_proc=n_processes if n_processes > 1 else None,
        use_cpu=True,
        bf16=False,
        report_to=[],
    )
    return SFTTrainer(Qwen3ForCausalLM(config), args, train_dataset=rows, processing_class=tokenizer)


def answer_of(input_ids: pa.ChunkedArray, marks: pa.ChunkedArray, unlearned: int) -> Answer:
    """`input_ids`: a list for each conversation. `marks`: its loss mask or labels, which are `unlearned` where a token is
    not to be learned."""
    lengths = pc.list_value_length(input_ids).to_numpy().astype("<i8")
    assert np.array_equal(lengths, pc.list_value_length(marks).to_numpy()), "a mask is not as long as its ids"
    ids = pc.list_flatten(input_ids).to_numpy().astype("<i4")
    mask = pc.list_flatten(marks).to_numpy() != unlearned
    digest = hashlib.sha256()
    for one in (lengths, ids, mask):
        digest.update(one.tobytes())
    return Answer(len(lengths), len(ids), int(mask.sum()), digest.hexdigest())


if __name__ == "__main__":
    main()
