"""What the page lists: all documents of a dataset, and the items of each file set."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import tokenmill
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.numbered import NumberedDocuments
from tokenmill.features.view.arranged_items import SetKey


class ItemSet(NamedTuple):
    """Items that the page lists. `kind`: documents or sequences. `key`: the file set; None: these are all documents. `open`: gives
    the items, which are opened when they are first needed."""

    name: str
    kind: str
    n_items: int
    key: SetKey | None
    open: Callable[[], Any]


def item_sets(dataset: Path, manifest: Manifest) -> Iterator[ItemSet]:
    """All documents, and the items of each split, source and epoch. All formats have the same items, and one of them is read."""
    yield ItemSet(
        "documents", "documents", manifest.n_documents, None, cache(partial(NumberedDocuments, dataset, manifest))
    )
    pack = manifest.files.pack if manifest.files else None
    is_index = pack is not None and pack.output == "index"
    seen = set()
    for file_set in manifest.sets:
        key = SetKey(file_set.split, file_set.source, file_set.epoch or 0)
        if (file_set.format == "index") != is_index or key in seen:
            continue
        seen.add(key)
        kind = "documents" if pack is None else "sequences"
        epoch = None if file_set.epoch is None else f"epoch {file_set.epoch}"
        words = [file_set.split, file_set.source, epoch, f"{kind} of the file sets"]

        @cache
        def opened(key: SetKey = key) -> Any:
            found = tokenmill.open(dataset, key.split, source=key.source, epoch=key.epoch)
            return found.packed() if is_index else found

        n_items = sum(part.n_items for part in file_set.parts)
        yield ItemSet(" · ".join(word for word in words if word), kind, n_items, key, opened)
