"""Opens Parquet files so that the checksums of their pages are checked, where they have any. pyarrow reads on without that."""

from pathlib import Path
from typing import Any

import pyarrow as pa


def parquet_file(source: Any, **options: Any) -> Any:
    """The pyarrow.parquet.ParquetFile of a path or a file object. A page whose checksum is wrong raises OSError when it is read."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, page_checksum_verification=True, **options)


def read_table(path: Path, **options: Any) -> pa.Table:
    """What pyarrow.parquet.read_table gives. A page whose checksum is wrong raises OSError."""
    import pyarrow.parquet as pq

    return pq.read_table(path, page_checksum_verification=True, **options)
