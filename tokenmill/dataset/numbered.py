"""The documents of a dataset by their numbers; one row group is read at a time."""

from pathlib import Path

from tokenmill.dataset.manifest import Manifest
from tokenmill_reader.array_types import Ids, Longs
from tokenmill_reader.blocks import Blocks
from tokenmill_reader.open_parts import Place
from tokenmill_reader.parquet_parts import ParquetParts


class NumberedDocuments(Blocks):
    """The documents of a dataset in its own order, from the documents' own files."""

    def __init__(self, dataset: Path, manifest: Manifest) -> None:
        shards = [(dataset / shard.name.removesuffix(".parquet"), shard) for shard in manifest.shards]
        places = [Place(path.parent, path.name, one.n_documents, one.n_tokens) for path, one in shards]
        super().__init__(ParquetParts(places, manifest.has_mask))

    def take(self, indexes: Longs) -> list[Ids]:
        """The ids of these documents, as TokenDataset.take gives them."""
        return self.items(indexes)
