"""Questions about tokenizers and datasets."""
