"""Packed conversations, read by the tools that train on them: what they get is what each conversation says by itself."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset, load_dataset
from trl import SFTConfig, SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from interop.packed_conversations import LENGTH, Document, Packed, packed
from tests.builders.chats import peer, tokenizer

NOTHING = -100
PAD_ID = tokenizer("plain").special_tokens["</s>"]

Row = dict[str, Any]

modes = pytest.mark.parametrize("mode", ["none", "concat", "best_fit"])
pads = pytest.mark.parametrize("pad_id", [None, PAD_ID], ids=["as long as their tokens", "padded"])


def segments(row: Row) -> list[list[int]]:
    """The ids of a sequence, cut at its starts."""
    starts = [int(start) for start in row["starts"]]
    return [list(row["input_ids"][a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True)]


class Source:
    """Finds the conversations that segments are of, each where its last one ended."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        self.n_seen = [0] * len(documents)

    def mask_of(self, ids: list[int], pad_id: int | None) -> list[int]:
        """The mask of a segment, without the padding behind it."""
        begun = sorted(range(len(self.documents)), key=lambda i: self.n_seen[i] == 0)
        for i in begun:
            rest = slice(self.n_seen[i], self.n_seen[i] + len(ids))
            own = self.documents[i].ids[rest]
            if own and (own == ids or (pad_id is not None and own + [pad_id] * (len(ids) - len(own)) == ids)):
                self.n_seen[i] += len(own)
                return self.documents[i].mask[rest]
        raise AssertionError(f"no conversation goes on with {ids[:20]}")

    def assert_done(self, mode: str) -> None:
        n_max = None if mode == "concat" else LENGTH
        assert self.n_seen == [len(one.ids[:n_max]) for one in self.documents]


def labels_of(ids: list[int], mask: list[int]) -> list[int]:
    """What a model that shifts labels by itself is to predict in a segment, nothing at its first token and its padding."""
    n_padding = len(ids) - len(mask)
    own = [id if learned else NOTHING for id, learned in zip(ids, mask, strict=False)]
    return [NOTHING, *own[1:], *[NOTHING] * n_padding]


def arrow_rows(folder: Path, mode: str = "best_fit", pad_id: int | None = None) -> tuple[Packed, Dataset]:
    made = packed(folder, "arrow", mode, pad_id)
    files = [f"{stem}.arrow" for stem in made.stems]
    return made, load_dataset("arrow", data_files=files, split="train", cache_dir=str(folder / "cache"))


@modes
@pads
def test_datasets_reads_labels_and_positions(mode: str, pad_id: int | None, tmp_path: Path) -> None:
    made, found = arrow_rows(tmp_path, mode, pad_id)
    source = Source(made.documents)
    n_split = 0
    for row in found:
        labels, positions, mask = [], [], []
        cut = segments(row)
        n_split += len(cut) > 1
        for ids in cut:
            own = source.mask_of(ids, pad_id)
            labels += labels_of(ids, own)
            mask += [0, *own[1:], *[0] * (len(ids) - len(own))]
            positions += range(len(ids))
        assert row["labels"] == labels
        assert row["loss_mask"] == mask
        assert row["position_ids"] == positions
        assert row["seq_lengths"] == list(map(len, cut))
        assert pad_id is None or len(row["input_ids"]) == LENGTH
    source.assert_done(mode)
    assert n_split or mode == "none"


def batches(found: Dataset, n: int = 3) -> Iterator[tuple[list[Row], list[Row]]]:
    """Rows as SFTTrainer gives them to its collator, and all columns beside them."""
    for at in range(0, len(found), n):
        rows = [found[i] for i in range(at, min(at + n, len(found)))]
        yield [{name: row[name] for name in ("input_ids", "labels", "seq_lengths")} for row in rows], rows


@modes
@pads
def test_the_collator_of_trl_keeps_conversations_apart(mode: str, pad_id: int | None, tmp_path: Path) -> None:
    made, found = arrow_rows(tmp_path, mode, pad_id)
    source = Source(made.documents)
    collate = DataCollatorForLanguageModeling(pad_token_id=PAD_ID, padding_free=True)
    for examples, rows in batches(found):
        batch = collate(examples)
        cut = [ids for row in rows for ids in segments(row)]
        assert batch["input_ids"].tolist() == [list(itertools.chain(*cut))]
        assert batch["position_ids"].tolist() == [[at for ids in cut for at in range(len(ids))]]
        assert batch["labels"].tolist() == [
            [label for ids in cut for label in labels_of(ids, source.mask_of(ids, pad_id))]
        ]
        assert batch["cu_seq_lens_q"].tolist() == [0, *np.cumsum([len(ids) for ids in cut])]
        assert batch["max_length_q"] == max(map(len, cut))
        assert batch["seq_idx"].tolist() == [[i for i, ids in enumerate(cut) for _ in ids]]
        assert "attention_mask" not in batch
    source.assert_done(mode)


def test_the_collator_of_trl_fills_sequences_up(tmp_path: Path) -> None:
    _, found = arrow_rows(tmp_path)
    collate = DataCollatorForLanguageModeling(pad_token_id=PAD_ID, return_position_ids=True)
    for examples, rows in batches(found):
        batch = collate(examples)
        length = max(len(row["input_ids"]) for row in rows)
        fill = {"input_ids": PAD_ID, "labels": NOTHING, "position_ids": 0}
        for name, value in fill.items():
            assert batch[name].tolist() == [row[name] + [value] * (length - len(row[name])) for row in rows]
        n_ids = [len(row["input_ids"]) for row in rows]
        assert batch["attention_mask"].tolist() == [[1] * n + [0] * (length - n) for n in n_ids]


def tiny_model(kind: str) -> Any:
    """A random model whose weights are so large that each token it sees changes what it predicts."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    config_of, model_of = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[kind]
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(1)
    config = config_of(
        vocab_size=tokenizer("plain").id_max + 1,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.8,
        bos_token_id=None,
        eos_token_id=None,
        **sizes,
    )
    return model_of(config).float()


def loss_by_hand(model: Any, rows: Sequence[Row], documents: Sequence[Document]) -> float:
    """The mean over the tokens to learn of conversations that the model sees one by one."""
    source = Source(documents)
    total, n_tokens = 0.0, 0
    for ids in (ids for row in rows for ids in segments(row)):
        with torch.no_grad():
            scores = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        mask = source.mask_of(ids, None)
        for at in range(1, len(ids)):
            if mask[at]:
                total -= scores[at - 1, ids[at]].item()
                n_tokens += 1
    return total / n_tokens


def trainer_of(model: Any, rows: Dataset, folder: Path, **settings: Any) -> SFTTrainer:
    """A trainer of one step over all rows in one batch."""
    args = SFTConfig(
        str(folder / "out"),
        max_steps=1,
        per_device_train_batch_size=len(rows),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **settings,
    )
    return SFTTrainer(model, args, train_dataset=rows, processing_class=peer("plain"))


def trained(model: Any, rows: Dataset, folder: Path, **settings: Any) -> float:
    """The loss of that step, as the guide has it set."""
    guide = {"dataset_kwargs": {"skip_prepare_dataset": True}, "max_length": None}
    loss: float = trainer_of(model, rows, folder, **guide, **settings).train().training_loss
    return loss


def rows_of_several(folder: Path) -> tuple[Packed, Dataset]:
    """Some sequences of two conversations and more."""
    made, found = arrow_rows(folder)
    several = [i for i, row in enumerate(found) if len(row["starts"]) > 1]
    return made, found.select(several[:4])


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_step_of_sft_trainer_has_the_loss_of_conversations_one_by_one(kind: str, tmp_path: Path) -> None:
    made, rows = rows_of_several(tmp_path)
    model = tiny_model(kind)
    expected = loss_by_hand(model, list(rows), made.documents)
    assert trained(model, rows, tmp_path, padding_free=True) == pytest.approx(expected, rel=1e-6)


def test_without_padding_free_conversations_of_a_sequence_see_each_other(tmp_path: Path) -> None:
    """Why the guide asks for padding_free: the collator makes no position ids without it."""
    made, rows = rows_of_several(tmp_path)
    model = tiny_model("llama")
    expected = loss_by_hand(model, list(rows), made.documents)
    assert abs(trained(model, rows, tmp_path) / expected - 1) > 1e-3


def test_packing_again_in_trl_joins_the_conversations_of_a_sequence(tmp_path: Path) -> None:
    """Why the guide asks for no packing: what was a sequence becomes one segment."""
    _, rows = rows_of_several(tmp_path)
    trainer = trainer_of(tiny_model("llama"), rows, tmp_path, packing=True, max_length=LENGTH)
    assert sorted(trainer.train_dataset["seq_lengths"]) == sorted([len(row["input_ids"])] for row in rows)


@modes
@pytest.mark.parametrize("mmap", [True, False])
def test_megatron_reads_items_of_words(mode: str, mmap: bool, tmp_path: Path) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    made = packed(tmp_path, "megatron_sft", mode)
    source = Source(made.documents)
    for stem in made.stems:
        found = IndexedDataset(f"{stem}.sft", mmap=mmap)
        assert found.index.dtype is np.int32
        assert found.document_indices.tolist() == list(range(len(found) + 1))  # one document an item
        for i in range(len(found)):
            words = found[i].view(np.uint32).tolist()
            magic, version, n_starts = words[:3]
            assert (magic.to_bytes(4, "big"), version) == (b"SFTB", 1)
            starts, rest = words[3 : 3 + n_starts], words[3 + n_starts :]
            row = {"starts": starts, "input_ids": [word & 0x7FFFFFFF for word in rest]}
            at_inputs: list[int] = []
            for ids in segments(row):
                at_inputs += [*source.mask_of(ids, None)[1:], 0]  # beside the token before the one to learn
            assert [word >> 31 for word in rest] == at_inputs
    source.assert_done(mode)


@modes
def test_parquet_of_megatron_bridge_has_the_same(mode: str, tmp_path: Path) -> None:
    made = packed(tmp_path, "megatron_sft_parquet", mode)
    source = Source(made.documents)
    for stem in made.stems:
        for found in pq.read_table(f"{stem}.idx.parquet", partitioning=None).to_pylist():
            row = {"starts": found["seq_start_id"], "input_ids": found["input_ids"]}
            masks = [source.mask_of(ids, None) for ids in segments(row)]
            assert found["loss_mask"] == [one for mask in masks for one in (*mask[1:], 0)]
    source.assert_done(mode)


@modes
def test_streaming_reads_masks(mode: str, tmp_path: Path) -> None:
    from streaming import LocalDataset

    made = packed(tmp_path, "mds", mode)
    source = Source(made.documents)
    found = LocalDataset(str(made.stems[0].parent))
    for i in range(len(found)):
        row = {"starts": found[i]["starts"].tolist(), "input_ids": found[i]["tokens"].tolist()}
        masks = [source.mask_of(ids, None) for ids in segments(row)]
        assert found[i]["loss_mask"].tolist() == [one for mask in masks for one in (0, *mask[1:])]
    source.assert_done(mode)
