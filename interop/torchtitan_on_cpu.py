"""torchtitan trains on a processor, though it is written for a GPU: `python -m interop.torchtitan_on_cpu --module … --config …`."""

import sys
from types import SimpleNamespace

import torch
import torch.nn.attention.flex_attention as flex
from torchtitan.tools import utils

utils.device_type, utils.device_module = "cpu", torch.cpu  # before torchtitan's other modules import them
torch.cpu.current_device = lambda: 0
torch.cpu.get_device_name = lambda _: "CPU"
torch.cpu.get_device_properties = lambda _: SimpleNamespace(total_memory=1)
torch.cpu.memory_stats = lambda _: {}
torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda: None

from torchtitan import train  # noqa: E402
from torchtitan.models.common.attention import FlexAttention  # noqa: E402

# Compiled, flex attention has no gradients on a processor. Not compiled, it has them, but refuses.
flex._validate_device = lambda *_: None
FlexAttention._compiled_flex_attn = flex.flex_attention
sys.argv += ["--training.disable_cuda_graphs", "--training.mixed_precision_param", "float32"]
train.main()
