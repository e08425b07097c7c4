"""Reads the token datasets that tokenmill builds, in a training job: pure Python and numpy; pyarrow for Arrow and Parquet files.

    import tokenmill_reader

    dataset = tokenmill_reader.open("data/tokens", split="train").sequences(2048).shuffle(seed=0)
    for ids in dataset.shard(rank, world):
        ...

`tokenmill.open` is the same function.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill_reader.copy_check import check
    from tokenmill_reader.description import info
    from tokenmill_reader.errors import ParamsError, StorageError, TokenmillError, ValidationError
    from tokenmill_reader.rank_iterator import RankIterator
    from tokenmill_reader.token_dataset import TokenDataset, open

__version__ = "0.3.0"

__all__ = [
    "ParamsError",
    "RankIterator",
    "StorageError",
    "TokenDataset",
    "TokenmillError",
    "ValidationError",
    "__version__",
    "check",
    "info",
    "open",
]

_HOMES = {
    "ParamsError": "errors",
    "RankIterator": "rank_iterator",
    "StorageError": "errors",
    "TokenDataset": "token_dataset",
    "TokenmillError": "errors",
    "ValidationError": "errors",
    "check": "copy_check",
    "info": "description",
    "open": "token_dataset",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: numpy takes 0.1 s, which a command of tokenmill can do without."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tokenmill_reader' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"tokenmill_reader.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
